"""No module imports itself through others, so that each can be read, and loaded, after those it stands on."""

import graphlib

import grimp

PACKAGES = ("odometer_accountant", "privacy_odometer", "odometer_client")


def imports() -> dict[str, set[str]]:
    """The modules of the three packages and the modules that each imports, wherever in a file it does.

    Imports inside functions count, and so do imports for type checkers alone.
    """
    graph = grimp.build_graph(*PACKAGES, cache_dir=None, exclude_type_checking_imports=False)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """One circle of imports, from a module back to itself; empty if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_module_imports_itself_through_others() -> None:
    """The import graph of all three packages together has no circle."""
    graph = imports()
    assert {module.partition(".")[0] for module in graph} == set(PACKAGES)
    assert len(graph) > 200, "the graph is not whole: grimp found too few modules"
    assert circle_in(graph) == []


def test_a_circle_would_be_found() -> None:
    """The check itself: a circle of three modules is named, and a graph without one is not."""
    assert set(circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}
    assert circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
