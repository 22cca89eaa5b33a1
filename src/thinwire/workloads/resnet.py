"""ResNet (He et al., 2015), with the names that torchvision and shapes.py have."""

import torch.nn.functional as F
from torch import Tensor, nn


def _shortcut(incoming: int, outgoing: int, stride: int) -> nn.Module:
    if stride == 1 and incoming == outgoing:
        return nn.Identity()
    convolution = nn.Conv2d(incoming, outgoing, 1, stride, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outgoing))


class Basic(nn.Module):
    """Two 3 × 3 convolutions."""

    expansion = 1

    def __init__(self, incoming: int, inner: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(incoming, inner, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = (
            nn.Conv2d(inner, inner, 3, padding=1, bias=False),
            nn.BatchNorm2d(inner),
        )
        self.downsample = _shortcut(incoming, inner, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Module):
    """The stride is in the 3 × 3 convolution, as torchvision has it."""

    expansion = 4

    def __init__(self, incoming: int, inner: int, stride: int) -> None:
        super().__init__()
        outgoing = 4 * inner
        self.conv1, self.bn1 = nn.Conv2d(incoming, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, outgoing, 1, bias=False), nn.BatchNorm2d(outgoing)
        self.downsample = _shortcut(incoming, outgoing, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """Names the class of an image.

    For images of a few dozen pixels the first convolution is 3 × 3 and nothing is pooled, as in
    the paper's section 4.2.
    """

    def __init__(
        self,
        blocks: tuple[int, ...] = (3, 4, 6, 3),
        width: int = 64,
        classes: int = 1000,
        block: type[Basic] | type[Bottleneck] = Bottleneck,
        small_images: bool = False,
    ) -> None:
        super().__init__()
        self.small_images = small_images
        kernel, stride = (3, 1) if small_images else (7, 2)
        self.conv1 = nn.Conv2d(3, width, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        channels, stages = width, []
        for stage, count in enumerate(blocks):
            inner, made = width << stage, []
            for place in range(count):
                made.append(block(channels, inner, 2 if stage and not place else 1))
                channels = block.expansion * inner
            stages.append(nn.Sequential(*made))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(images)))
        if not self.small_images:
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits
