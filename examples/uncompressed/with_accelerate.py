"""BERT with Hugging Face Accelerate, from its config.

torchrun --nproc-per-node 2 examples/uncompressed/with_accelerate.py
"""

import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForMaskedLM

STEPS = 20


def main() -> None:
    torch.random.default_generator.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertForMaskedLM(BertConfig(vocab_size=100, intermediate_size=128, **sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = accelerator.prepare(model, optimizer)

    data = torch.Generator().manual_seed(accelerator.process_index)
    for step in range(STEPS):
        ids = torch.randint(100, (8, 1), generator=data).expand(8, 16).contiguous()
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 10 == 0:
            accelerator.print(f"step {step + 1}  loss {loss.item():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
