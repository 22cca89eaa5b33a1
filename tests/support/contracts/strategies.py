"""Hypothesis strategies for cases. Drawn here, in the parent; the workers get the case."""

from hypothesis import strategies as st

from support.contracts.cases import CONTENTS, DTYPES, LAYOUTS, Case, Layer

ranks = (1, 2, 3, 5, 8)  # for what is a formula of P


# What is simplest to Hypothesis comes first here, and is drawn first: it must be worth a run.


def shapes() -> st.SearchStrategy[tuple[int, ...]]:
    sizes = st.integers(0, 17)
    return st.one_of(
        st.tuples(st.integers(200, 3000)),
        st.tuples(st.integers(0, 60), st.integers(0, 60)),
        st.tuples(sizes, sizes, sizes),
        st.just(()),
    )


def layers() -> st.SearchStrategy[Layer]:
    return st.builds(
        Layer,
        shape=shapes(),
        dtype=st.sampled_from(["float32", *DTYPES]),
        layout=st.sampled_from(LAYOUTS),
        content=st.sampled_from(CONTENTS),
        scale=st.sampled_from([1.0, 1e-3, 8.0]),
    )


def settings_of_a_recipe() -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries(
        {
            "density": st.sampled_from([0.05, 0.003, 0.3, 1.0]),
            "unit": st.sampled_from(["tensor", "bucket", "model"]),
            "bypass": st.sampled_from([0, 0, 100]),
        }
    )


def cases(recipe: str) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        recipe=st.just(recipe),
        layers=st.lists(layers(), min_size=2, max_size=4).map(tuple),
        steps=st.integers(3, 4),
        seed=st.integers(0, 2**32),
        settings=settings_of_a_recipe(),
    )
