"""ResNet with bottlenecks (He et al., 2015), with the names that torchvision and shapes.py have."""

import torch.nn.functional as F
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """The stride is in the 3 × 3 convolution, as torchvision has it."""

    def __init__(self, incoming: int, inner: int, stride: int) -> None:
        super().__init__()
        outgoing = 4 * inner
        self.conv1, self.bn1 = nn.Conv2d(incoming, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, outgoing, 1, bias=False), nn.BatchNorm2d(outgoing)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or incoming != outgoing:
            shortcut = nn.Conv2d(incoming, outgoing, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outgoing))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """Names the class of an image."""

    def __init__(
        self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        channels, stages = width, []
        for stage, count in enumerate(blocks):
            inner, made = width << stage, []
            for block in range(count):
                made.append(Bottleneck(channels, inner, 2 if stage and not block else 1))
                channels = 4 * inner
            stages.append(nn.Sequential(*made))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(images))), 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits
