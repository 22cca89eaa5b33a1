"""What each lossy value codec promises beyond its error bound.

Covers codec/value/qsgd.py, codec/value/sign.py, codec/value/tern.py.
"""

import math
from typing import Literal

import pytest
import torch
from torch import Tensor

from support.codec.cases import VALUES, random_values, squared
from thinwire.codec.value import QsgdValue, SignValue
from thinwire.types import ValueCodec

UNBIASED = [name for name, codec in VALUES.items() if codec.unbiased and not codec.lossless]


def decoded(codec: ValueCodec, x: Tensor, seed: int) -> Tensor:
    return codec.decode(codec.encode(x, seed), x.numel(), x.dtype)


def test_which_codecs_are_unbiased() -> None:
    lossless = {"raw", "deflate", "zstd"} & VALUES.keys()
    assert {codec.name for codec in VALUES.values() if codec.lossless} == lossless
    stochastic = {"tern", "qsgd", "chunked"}
    assert {codec.name for codec in VALUES.values() if codec.unbiased} == lossless | stochastic


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_over_seeds(name: str, dtype: torch.dtype) -> None:
    """The mean over seeds is the value, within four standard errors for each of 40 values."""
    draws = 2000
    x = torch.randn(40, generator=torch.Generator().manual_seed(12), dtype=dtype)
    x[3], x[4] = 0.0, -0.001
    samples = torch.stack([decoded(VALUES[name], x, seed) for seed in range(draws)]).double()
    # A coin toss between two levels has variance p·(1 - p) ≤ 1/4, and ≤ p below the first level
    # where zero is one: on a chunk's grid it is not.
    level = VALUES[name].error_bound(x)
    variance = (x.abs().double() / level).clamp(max=0.25)
    if VALUES[name].name == "chunked":
        variance = torch.full_like(level, 0.25)
    standard_error = level * (variance / draws).sqrt()
    rounding = 1e-6 * x.abs().double() + level * 2**-23
    assert ((samples.mean(0) - x).abs() <= 4 * standard_error + rounding).all()
    assert (samples.std(0) > 0).any(), "nothing was rounded at random"


@pytest.mark.parametrize("name", UNBIASED)
def test_neighbours_are_rounded_independently(name: str) -> None:
    x = torch.full((2, 2000), 0.3)
    x[:, 0] = 1.0
    error = decoded(VALUES[name], x.reshape(-1), seed=5) - x.reshape(-1)
    error = error - error.mean()
    for lag in (1, 2, 16, 512, 2000):
        correlation = float((error[lag:] * error[:-lag]).sum() / error.square().sum())
        assert abs(correlation) < 0.1, lag


def test_sign_error_is_the_identity_of_the_paper() -> None:
    """‖x − C(x)‖² = ‖x‖² − ‖x‖₁²/d, zeros included (EF-SignSGD, lemma 8)."""
    x = random_values(5000, torch.float64, seed=3)
    x[::7] = 0.0
    out = decoded(SignValue(), x, 0)
    expected = squared(x) - math.fsum(x.abs().tolist()) ** 2 / x.numel()
    assert math.isclose(squared(out - x), expected, rel_tol=1e-9)
    assert torch.equal(out < 0, x < 0)


def test_tern_variance_is_the_papers() -> None:
    x = torch.tensor([1.0, 0.25, -0.5, 0.75])
    samples = torch.stack([decoded(VALUES["tern"], x, seed) for seed in range(2000)])
    assert set(samples.view(-1).tolist()) == {-1.0, 0.0, 1.0}
    torch.testing.assert_close(samples.var(0), x.abs() * (1 - x.abs()), atol=0.03, rtol=0)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_qsgd_variance_is_within_the_papers(bits: int) -> None:
    """E‖Q(x) − x‖² ≤ min(d/s², √d/s)·‖x‖² for each bucket of d (QSGD, lemma 3.1)."""
    x = torch.randn(512, generator=torch.Generator().manual_seed(1))
    codec, levels = QsgdValue(bits=bits), 2 ** (bits - 1) - 1
    mean_error = sum(squared(decoded(codec, x, seed) - x) for seed in range(100)) / 100
    assert mean_error <= min(512 / levels**2, math.sqrt(512) / levels) * squared(x)
    assert mean_error > 0


@pytest.mark.parametrize("norm", ["l2", "max"])
def test_qsgd_norms_are_rounded_up(norm: Literal["l2", "max"]) -> None:
    """By at most one float32: no value exceeds its norm, which would bias the largest."""
    x = random_values(700, torch.float64, seed=6)
    part = QsgdValue(bucket=7, norm=norm).encode(x, 0)
    sent = part[8 : 8 + 4 * 100].view(torch.float32)
    exact = torch.linalg.vector_norm(x.view(100, 7), 2 if norm == "l2" else math.inf, dim=1)
    assert (sent >= exact * (1 - 1e-15)).all()
    assert (sent <= exact * (1 + 2**-22)).all()


@pytest.mark.parametrize(
    ("name", "bits"),
    [("raw", 32), ("fp16", 16), ("bf16", 16), ("sign", 1), ("tern", 1.6), ("qsgd", 8 + 32 / 512)],
)
def test_bits_a_value(name: str, bits: float) -> None:
    count = 5 * 1024
    part = VALUES[name].encode(random_values(count, torch.float32, 1), 1)
    settings = 8 if name in ("sign", "tern", "qsgd") else 0  # a scale, or QSGD's settings
    assert part.numel() == settings + bits * count / 8


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_halves_saturate_and_round_to_nearest(name: str) -> None:
    half = torch.float16 if name == "fp16" else torch.bfloat16
    limit = torch.finfo(half).max
    x = torch.tensor([limit, -limit, 3.4028235e38, -3.4028235e38, 1.0, 1 / 3])
    out = decoded(VALUES[name], x, 0)
    assert out[:4].tolist() == [limit, -limit, limit, -limit]
    assert torch.equal(out[4:], x[4:].to(half).float())
    assert decoded(VALUES[name], torch.tensor([1e300], dtype=torch.float64), 0).item() == limit


@pytest.mark.parametrize("setting", [{"bits": 1}, {"bits": 17}, {"bucket": 0}, {"norm": "l1"}])
def test_qsgd_settings_are_checked(setting: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(setting.values())))):
        QsgdValue(**setting)  # type: ignore[arg-type]
