"""Operations on many tensors in one launch, which PyTorch has by private names alone."""

import torch

add = torch._foreach_add
add_ = torch._foreach_add_
copy_ = torch._foreach_copy_
mul = torch._foreach_mul
mul_ = torch._foreach_mul_
