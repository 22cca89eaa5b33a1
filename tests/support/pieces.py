"""Every registered piece, each inside a recipe whose other pieces are the plainest that fit."""

from thinwire.cookbook.registry import pieces

CODEC_FOR = {"bytes": "raw", "linear": "sketch", "none": "none"}
"""The plainest codec of each kind that a collective takes."""


def recipes_by_piece() -> dict[str, str]:
    """A recipe for each piece, by its role and name.

    Read from the registries: a new piece, and one that a third party registered, is in it.
    """
    return {
        **{
            f"sparsifier {name}": f"{name} | raw | allgather | residual"
            for name in pieces("sparsifier")
        },
        **{f"index codec {name}": with_codec(f"{name}+raw") for name in pieces("index")},
        **{f"value codec {name}": with_codec(f"raw+{name}") for name in pieces("value")},
        **{f"whole codec {name}": with_codec(name) for name in pieces("codec")},
        **{
            f"linear codec {name}": f"block(0.25, 16) | {name} | sketch-allreduce | residual"
            for name in pieces("linear")
        },
        **{
            f"collective {name}": f"topk(0.1) | {CODEC_FOR[piece.takes]} | {name} | residual"
            for name, piece in pieces("collective").items()
        },
        **{
            f"feedback {name}": f"topk(0.1) | raw | allgather | {name}"
            for name in pieces("feedback")
        },
    }


def with_codec(codec: str) -> str:
    return f"topk(0.1) | {codec} | allgather | residual"
