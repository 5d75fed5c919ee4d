"""Truths of the Gaussians in disguise of training loops."""

from typing import Any

import mpmath as mp
from hypothesis import strategies as st

from tests.support.kinds.discrete import logs
from tests.support.oracles import Real, number


def _clipping(document: dict[str, Any], alpha: Real) -> Real:
    if document.get("noise_multiplier") is not None:
        return alpha / (2 * number(document["noise_multiplier"]) ** 2)
    gradient, count = (
        number(document["gradient_noise_multiplier"]),
        number(document["count_standard_deviation"]),
    )
    return alpha * (1 / gradient**2 + 1 / (4 * count**2)) / 2


def _tree(document: dict[str, Any], alpha: Real) -> Real:
    if not document["noise_multiplier"]:
        return mp.inf
    # Drawn below with one participation: the levels of the tree.
    return alpha * document["steps"].bit_length() / (2 * number(document["noise_multiplier"]) ** 2)


RENYI = {"adaptive_clipping": _clipping, "tree_aggregation": _tree}
DELTA = {"tree_aggregation": lambda document: mp.mpf(0) if document["noise_multiplier"] else mp.inf}


@st.composite
def _clippings(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(["noise_multiplier", "gradient_noise_multiplier"]))
    noise = draw(logs(0.01, 1e9))
    count = draw(logs(max(0.01, noise * 0.6), 1e9)) if name == "noise_multiplier" else draw(logs(0.01, 1e9))
    return {"kind": "adaptive_clipping", name: noise, "count_standard_deviation": count}


DRAWS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "adaptive_clipping": _clippings(),
    "tree_aggregation": st.fixed_dictionaries(
        {
            "kind": st.just("tree_aggregation"),
            "noise_multiplier": st.one_of(logs(0.01, 1e9), st.just(0.0)),
            "steps": st.integers(1, 10**9),
            "trees": st.integers(1, 10**6),
            "participations": st.just(1),
            "separation": st.integers(0, 10**9),
        }
    ),
}
