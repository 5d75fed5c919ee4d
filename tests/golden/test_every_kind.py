"""Each mechanism has a number from elsewhere: a row of vectors.json, or a test that cites its source."""

from pathlib import Path

from odometer_accountant.mechanisms import Mechanism
from tests.golden.test_vectors import LEFT_OUT, ROWS, handler

HERE = Path(__file__).parent
BY_FORMULA = {"hadamard_response", "local_hashing", "count_mean_sketch", "distributed_discrete_gaussian"}
"""Kinds for which a formula was found elsewhere, no number: held to exact sums, or to the kind they are."""
OUTSIDE = {
    "above_threshold": "svt-svt1",
    "adaptive_clipping": "test_discrete.py::test_adaptive_clipping_as_opacus",
    "approximate": "dpl-01",
    "composed": "test_against_peers.py::test_a_curve_agrees_with_a_peers_or_the_truth_says_why",
    "count_mean_sketch": "test_local_reports.py::test_a_sketch_is_symmetric_unary_encoding",
    "discrete_gaussian": "dgauss-01",
    "discrete_laplace": "dlaplace-comp",
    "distributed_discrete_gaussian": "test_discrete.py::test_distributed_noise_is_never_below_the_exact_sum",
    "exponential": "expmech-a1",
    "gaussian": "gauss-rdp-01",
    "gdp": "gdp-rr",
    "grouped": "user-k3",
    "hadamard_response": "rr-bool",
    "laplace": "laplace-rdp-b1-a2",
    "local_hashing": "rr-replace-one-k10-p0.3",
    "pate_gnmax": "pate-gnmax-di",
    "pate_lnmax": "test_pate.py::test_a_query_of_lnmax_is_two_gamma_and_not_gamma",
    "permute_and_flip": "permflip",
    "poisson_subsampled": "pois-rdp-a5",
    "pure": "dpl-02",
    "randomized_response": "rr-replace-one-k10-p0.3",
    "rappor": "test_local_reports.py::test_rappor_as_its_authors_compute_it",
    "renyi_curve": "conv-01",
    "report_noisy_max": "test_selection.py::test_an_eighth_is_false_for_exponential_noise",
    "sampled_without_replacement": "wor-rdp-a5",
    "shuffled": "shuffle-closed",
    "shuffled_epochs": "gauss-eps-03",
    "skellam": "skellam-rdp-a8-l14-s1",
    "tree_aggregation": "tree-3-3-9",
    "tuned": "test_tuning.py::test_gaussian_corollary",
    "unary_encoding": "test_local_reports.py::test_oue_by_the_formula_of_a_peer",
    "zcdp": "census-pl94",
}


def test_every_kind_has_a_number_from_elsewhere() -> None:
    """All but `non_private`, which has no number."""
    assert set(OUTSIDE) == set(Mechanism.registry) - {"non_private"}
    assert set(OUTSIDE) >= BY_FORMULA
    for kind, where in OUTSIDE.items():
        if "::" in where:
            file, name = where.split("::")
            assert f"def {name}" in (HERE / file).read_text("utf-8"), kind
        else:
            assert where in ROWS.keys() - LEFT_OUT.keys(), kind
            assert handler(ROWS[where]) is not None, kind
