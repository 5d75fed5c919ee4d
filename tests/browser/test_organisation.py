"""What a data-protection officer sees of scopes, windows, holds, shares, units and frozen ledgers."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, expect
from serving import GAUSSIAN, ONE, Live, live

from odometer_accountant.ledger.commands import FreezeCommand
from odometer_accountant.service.reader import BlockingReply
from odometer_accountant.stores import Head
from odometer_accountant.writer.writer import utc_now
from odometer_client.testing import Service

MARKUP = "<img src=x onerror=\"document.title='owned'\"><b>Ann</b>"
RUNNING: list[Live] = []


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A service in this process, so that a ledger can be frozen."""
    with live() as running:
        accountant = running.app.state.accountant
        end = accountant.clock()[:13] + ":59:59.999999Z"

        def clock() -> str:
            """The wall clock, but for the end of this hour: no window renews while the tests run."""
            return min(utc_now(), end)

        accountant.clock = accountant.writer._clock = clock
        _fill(running)
        RUNNING[:] = [running]
        yield Service(running.url, running.admin, None)  # type: ignore[arg-type]


@pytest.fixture
def running(service: Service) -> Live:
    return RUNNING[0]


def _zcdp(name: str, rho: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "zcdp", "rho": rho, **more}


def _fill(running: Live) -> None:
    """One dataset of each kind."""
    ann = running.ask("POST", "/v1/keys", json={"role": "charger", "name": MARKUP, "team": "ads"}).json()
    running.keys["ann"] = ann["token"]
    proxy = running.ask(
        "POST", "/v1/keys", json={"role": "charger", "name": "proxy", "acts_for": ["*"]}
    ).json()
    running.keys["proxy"] = proxy["token"]
    running.open(
        "shared",
        budgets=[
            _zcdp("life", 20, reserved={"ads": 0.5, "ops": 0.2}),
            _zcdp("day", 8, window="day"),
            _zcdp("each", 5, scope="principal/*"),
            _zcdp("each-hour", 4, scope="principal/*", window="hour"),
            _zcdp("sweeps", 10, scope="group/*"),
        ],
    )
    assert running.charge("shared", "one", role="ann").status_code == 201
    assert (
        running.charge("shared", "sweep", {**ONE, "group": {"name": "sweep", "runs": 2}}).status_code == 201
    )
    for number in range(22):
        body = {
            "mechanism": {**GAUSSIAN, "noise_multiplier": 50},
            "count": 1,
            "principal": f"user-{number:02}",
        }
        assert running.charge("shared", f"user-{number}", body, "proxy").status_code == 201
    _hold(running, "shared", "kept", 4, "ann")
    settled = _hold(running, "shared", "settled", 2, "ann")
    path = f"/v1/datasets/shared/holds/{settled}/settlement"
    assert running.ask("POST", path, "ann", json={"used": 1}).status_code == 200
    running.open("regions", rho=10, composition="by_partition", partitions=["eu", "us", "asia"])
    for name, where in (("a", "all"), ("b", ["eu"]), ("c", ["eu"])):
        assert running.charge("regions", name, {**ONE, "partitions": where}).status_code == 201
    assert (
        running.ask("POST", "/v1/datasets/regions/partitions", json={"partitions": ["mars"]}).status_code
        == 200
    )
    running.open("phones", composition="by_unit", shards=2, budgets=[_zcdp("each", 4, scope="unit/*")])
    assert running.charge("phones", "u", {**ONE, "units": ["phone:1"]}).status_code == 201
    _fill_to_the_brim(running)
    for name in ("frozen", "unfrozen"):
        running.open(name)
        running.charge(name, "one")
        freeze(running, name)
    reason = {"reason": f"Nothing was released. {MARKUP}"}
    assert running.ask("POST", "/v1/datasets/unfrozen/unfreeze", json=reason).status_code == 200


def _fill_to_the_brim(running: Live) -> None:
    """Several budgets, so that the weights are those of none; charged to the limit of the first."""
    life = {"name": "life", "kind": "approximate", "epsilon": 4, "delta": 1e-6}
    each = {"name": "each", "kind": "approximate", "epsilon": 4.5, "delta": 1e-6, "scope": "principal/*"}
    wide = {**life, "name": "wide", "epsilon": 40}
    running.open("full", budgets=[life, wide, each, _zcdp("day", 100, window="day")])
    for noise in (8, 50, 400):
        body = {"mechanism": {**GAUSSIAN, "noise_multiplier": noise}, "count": 10**7}
        fits = running.ask("POST", "/v1/datasets/full/checks", json=body).json()["would_fit"]
        if fits["largest_count"]:
            charge = {**body, "count": fits["largest_count"]}
            assert running.charge("full", f"noise-{noise}", charge).status_code == 201


def _hold(running: Live, dataset: str, key: str, count: int, role: str) -> str:
    body = {"mechanism": GAUSSIAN, "count": count, "expires_in_s": 7200}
    if role == "ann":
        body["group"] = {"name": "pilot", "runs": 1}
    path, headers = f"/v1/datasets/{dataset}/holds", {"Idempotency-Key": key}
    reply = running.ask("POST", path, role, json=body, headers=headers)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["hold"]["id"])


def freeze(running: Live, stream: str) -> None:
    """As when history that a process saw is gone."""
    waiter = BlockingReply()
    running.app.state.accountant.writer.submit(stream, FreezeCommand(Head(9, "gone")), waiter, None)
    waiter.wait()


def _see(visitor, path: str) -> None:
    visitor.open(path)
    visitor.sign_in()
    if path != "/":
        expect(visitor.page.locator("#ledger tbody tr").first).to_be_visible()


def _budget(visitor, name: str) -> Locator:
    return visitor.page.locator(f"#budgets [data-budget={name}]")


def _panel(visitor, kind: str) -> Locator:
    return visitor.page.locator(f".scopes[data-kind={kind}]")


def test_a_frozen_dataset_is_the_first_thing_on_the_overview(visitor) -> None:
    _see(visitor, "/")
    first = visitor.page.locator("#datasets article").first
    expect(first.get_by_role("link", name="frozen")).to_be_visible()
    for words in (
        "This dataset is frozen",
        "What happened",
        "entry 9",
        "Every charge is refused",
        "What to do",
        "unfreeze",
    ):
        expect(first).to_contain_text(words)
    expect(visitor.page.locator("#summary")).to_contain_text("1 frozen")
    expect(visitor.page.get_by_role("heading", name="regions")).to_be_visible()
    visitor.picture("overview-frozen")


def test_the_page_of_a_frozen_dataset_says_what_to_do_and_shows_no_number_but_the_ledger(visitor) -> None:
    visitor.expected = ("503",)
    _see(visitor, "/datasets/frozen")
    page = visitor.page
    expect(page.locator("#trouble")).to_contain_text("This dataset is frozen")
    expect(page.locator("#trouble")).to_contain_text("Find out what changed the store")
    expect(page.locator("#facts")).to_contain_text("No charges accepted")
    for hidden in ("#reading", "#budgets", "#history", "#readings", "#unit-form", "#principals"):
        expect(page.locator(hidden)).to_be_hidden()
    first = page.locator("#ledger tbody tr").first
    expect(first).to_contain_text("Frozen")
    expect(first).to_contain_text("entry 9 is missing or differs")
    visitor.picture("dataset-frozen")


def test_a_page_that_freezes_while_it_is_open_takes_its_numbers_away(visitor, running: Live) -> None:
    running.open("soon")
    visitor.expected = ("503",)
    _see(visitor, "/datasets/soon")
    expect(visitor.page.locator("#budgets")).to_be_visible()
    freeze(running, "soon")
    visitor.page.get_by_role("button", name="Refresh").click()
    expect(visitor.page.locator("#trouble")).to_contain_text("This dataset is frozen")
    expect(visitor.page.locator("#budgets")).to_be_hidden()
    assert running.ask("POST", "/v1/datasets/soon/unfreeze", json={"reason": "a drill"}).status_code == 200
    visitor.page.get_by_role("button", name="Refresh").click()
    expect(visitor.page.locator("#budgets")).to_be_visible()
    expect(visitor.page.locator("#trouble")).to_be_empty()


def test_a_reason_full_of_markup_stays_text(visitor) -> None:
    _see(visitor, "/datasets/unfrozen")
    first = visitor.page.locator("#ledger tbody tr").first
    expect(first).to_contain_text("Unfrozen")
    expect(first).to_contain_text(MARKUP)
    assert visitor.page.locator("main img, main b").count() == 0
    assert "owned" not in visitor.page.title()


def test_a_window_budget_says_when_it_renews(visitor) -> None:
    _see(visitor, "/datasets/shared")
    expect(_budget(visitor, "day").locator(".window")).to_have_text(re.compile(r"^daily, renews .+$"))
    assert _budget(visitor, "life").locator(".window").count() == 0


def test_a_budget_of_each_principal_has_no_bar_and_a_table(visitor) -> None:
    _see(visitor, "/datasets/shared")
    each = _budget(visitor, "each")
    expect(each).to_contain_text("for each principal")
    expect(each).to_contain_text("One for each")
    expect(each).not_to_contain_text("No bound")
    assert each.get_by_role("meter").count() == 0
    rows = _panel(visitor, "principal").locator("tbody tr")
    expect(rows).to_have_count(20)
    ann = _panel(visitor, "principal").locator("tbody tr", has_text="Ann")
    pages = visitor.page.get_by_role("group", name="Pages of principals")
    if ann.count() == 0:  # ids are random: the table is by id
        pages.get_by_role("button", name="Next").click()
        expect(rows).not_to_have_count(20)
    expect(ann).to_contain_text(MARKUP)
    expect(ann).to_contain_text("each-hour")
    expect(ann.get_by_role("meter")).to_have_attribute(
        "aria-label", re.compile("^Budget each-hour of principal/")
    )
    assert visitor.page.locator("main img, main b").count() == 0
    visitor.picture("dataset-scopes")


def test_the_table_of_principals_turns_pages(visitor) -> None:
    _see(visitor, "/datasets/shared")
    rows = _panel(visitor, "principal").locator("tbody tr")
    expect(rows).to_have_count(20)
    pages = visitor.page.get_by_role("group", name="Pages of principals")
    expect(pages.get_by_role("button", name="Previous")).to_be_disabled()
    first = rows.first.locator(".scope-name").inner_text()
    pages.get_by_role("button", name="Next").press("Enter")
    expect(rows).to_have_count(4)
    expect(pages.get_by_role("button", name="Next")).to_be_disabled()
    pages.get_by_role("button", name="Previous").press("Enter")
    expect(rows).to_have_count(20)
    expect(rows.first.locator(".scope-name")).to_have_text(first)


def test_what_is_held_is_a_lighter_part_of_the_bar(visitor, running: Live) -> None:
    _see(visitor, "/datasets/shared")
    life = _budget(visitor, "life")
    meter = life.get_by_role("meter")
    assert re.fullmatch(
        r"\d+(\.\d)? % used, of which 10(\.\d)? % is held", meter.get_attribute("aria-valuetext") or ""
    )
    expect(life).to_contain_text("of which held")
    boxes = [life.locator(part).bounding_box() for part in (".bar-full", ".bar-held", ".bar")]
    full, held, bar = [box["width"] for box in boxes if box is not None]
    odometer = running.ask("GET", "/v1/datasets/shared/odometer").json()
    budget = next(each for each in odometer["budgets"] if each["name"] == "life")
    assert held / bar == pytest.approx(0.1, abs=0.01)
    assert (full + held) / bar == pytest.approx(budget["used"], abs=0.01)
    expect(visitor.page.locator("#reading .held-note")).to_contain_text("Held: ρ 2")


def test_open_holds_say_who_what_and_until_when(visitor) -> None:
    _see(visitor, "/datasets/shared")
    rows = visitor.page.locator("#holds tbody tr")
    expect(rows).to_have_count(1)
    for words in (MARKUP, "team ads", "group pilot", "4 × Gaussian", "ρ 2", "then all of it stays spent"):
        expect(rows.first).to_contain_text(words)
    expect(rows.first.locator("time")).to_have_attribute("datetime", re.compile(r"^20\d\d-.*Z$"))


def test_without_open_holds_there_is_no_list_of_them(visitor) -> None:
    _see(visitor, "/datasets/regions")
    expect(visitor.page.locator("#holds-panel")).to_be_hidden()
    expect(visitor.page.locator("#shares-panel")).to_be_hidden()


def test_shares_of_teams_are_a_table(visitor) -> None:
    _see(visitor, "/datasets/shared")
    rows = visitor.page.locator("#shares tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text(re.compile(r"ads\s*50 %\s*ρ 10"))
    expect(rows.nth(1)).to_contain_text(re.compile(r"ops\s*20 %\s*ρ 4"))
    expect(rows.nth(2)).to_contain_text(re.compile(r"everybody\s*30 %"))


def test_the_reading_of_a_partitioned_dataset_is_that_of_the_worst_partition(visitor) -> None:
    _see(visitor, "/datasets/regions")
    expect(visitor.page.locator("#reading")).to_contain_text("worst partition")
    expect(_budget(visitor, "life")).to_contain_text("for each partition")
    rows = _panel(visitor, "partition").locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.filter(has_text="eu")).to_contain_text("ρ 1.5")
    expect(rows.filter(has_text="us")).to_contain_text("ρ 0.5")
    expect(visitor.page.locator("#ledger tbody tr").first).to_contain_text("Partitions added")
    expect(visitor.page.locator("#ledger")).to_contain_text("on all partitions")
    visitor.picture("dataset-partitions")


def test_of_units_there_is_no_number_as_a_whole_and_one_can_be_looked_up(visitor) -> None:
    _see(visitor, "/datasets/phones")
    page = visitor.page
    expect(page.locator("#reading")).to_contain_text("no number for the dataset as a whole")
    for hidden in ("#history", "#readings", "#principals", "#scopes"):
        expect(page.locator(hidden)).to_be_hidden()
    page.get_by_label("Unit", exact=True).fill("phone:1")
    page.get_by_label("Unit", exact=True).press("Enter")
    reading = page.locator("#unit-reading")
    expect(reading.get_by_role("heading", name="phone:1")).to_be_visible()
    expect(reading).to_contain_text("ρ 0.5")
    expect(reading.get_by_role("meter", name="Budget each")).to_have_attribute("aria-valuenow", "12.5")
    page.get_by_label("Unit", exact=True).fill("never:seen")
    page.get_by_role("button", name="Look up").click()
    expect(reading.get_by_role("meter", name="Budget each")).to_have_attribute("aria-valuenow", "0")
    visitor.picture("dataset-units")


def test_a_unit_that_cannot_be_one_is_said_in_words(visitor) -> None:
    _see(visitor, "/datasets/phones")
    page = visitor.page
    page.get_by_label("Unit", exact=True).fill(MARKUP[:64])
    page.get_by_role("button", name="Look up").click()
    expect(page.locator("#unit-error")).to_contain_text("1 to 64 characters")
    expect(page.locator("#unit-reading")).to_be_empty()


def test_a_frozen_shard_is_an_alert_on_its_dataset(visitor, running: Live) -> None:
    running.open("local", composition="by_unit", shards=1, budgets=[_zcdp("each", 4, scope="unit/*")])
    running.charge("local", "u", {**ONE, "units": ["u1"]})
    freeze(running, "~units/local/0000")
    visitor.expected = ("503",)
    _see(visitor, "/datasets/local")
    expect(visitor.page.get_by_role("alert").first).to_contain_text("Shard 0 is frozen")
    visitor.page.get_by_label("Unit", exact=True).fill("u1")
    visitor.page.get_by_role("button", name="Look up").click()
    expect(visitor.page.locator("#unit-error")).to_contain_text("Ledger history was rolled back.")


def test_the_ledger_says_everything_in_words(visitor) -> None:
    _see(visitor, "/datasets/shared")
    ledger = visitor.page.locator("#ledger")
    rows = ledger.locator("tbody tr")
    expect(rows.nth(0)).to_contain_text(re.compile(r"Settled\s*Hold \d+: 1 of 2 used"))
    expect(rows.nth(1)).to_contain_text("may be settled for less until")
    expect(rows.nth(2)).to_contain_text("Held")
    expect(rows.nth(3)).to_contain_text(re.compile(r"requested by p_\w+ on the principal's behalf"))
    visitor.page.get_by_role("group", name="Pages of the ledger").get_by_role("button", name="Older").click()
    expect(ledger).to_contain_text("group sweep, 2 runs together")
    expect(ledger).to_contain_text("each: zCDP ρ, limit 5, for each principal")
    expect(ledger).to_contain_text("day: zCDP ρ, limit 8, daily")


def test_the_ledger_says_who_asked_for_what_was_made(visitor, running: Live) -> None:
    running.open("plots")
    assert running.charge("plots", "one").status_code == 201
    body = {"parent": 2, "description": f"a plot {MARKUP}", "principal": "user-01"}
    headers = {"Idempotency-Key": "plot"}
    made = running.ask("POST", "/v1/datasets/plots/derived", "proxy", json=body, headers=headers)
    assert made.status_code == 201
    _see(visitor, "/datasets/plots")
    newest = visitor.page.locator("#ledger tbody tr").first
    expect(newest).to_contain_text("made from entry 2; no charge")
    expect(newest).to_contain_text(re.compile(r"requested by p_\w+ on the principal's behalf"))


def test_no_bound_and_no_number_are_different_words(visitor, running: Live) -> None:
    body = {"mechanism": {"kind": "non_private", "what": MARKUP}, "count": 1}
    running.open(
        "open", budgets=[_zcdp("day", 1, window="day"), _zcdp("each", 1, scope="team/*")], odometer_only=True
    )
    loose = {"mechanism": {"kind": "pure", "epsilon": 0.1}, "count": 1}
    assert running.charge("open", "fits", loose).status_code == 201
    running.open("only", budgets=[], odometer_only=True)
    assert running.charge("only", "bare", body).status_code == 201
    later = _zcdp("late", 1)
    assert running.ask("POST", "/v1/datasets/only/budgets", json=later).status_code == 201
    _see(visitor, "/datasets/only")
    expect(_budget(visitor, "late")).to_contain_text("No bound")
    expect(_budget(visitor, "late")).to_contain_text("no further charge is accepted")
    visitor.open("/datasets/open")
    expect(_budget(visitor, "each")).to_contain_text("One for each")
    expect(_panel(visitor, "team")).to_contain_text("No team was charged yet")


def test_a_page_with_a_frozen_shard_says_why_its_holds_are_not_shown(visitor, running: Live) -> None:
    running.open("tablets", composition="by_unit", shards=1, budgets=[_zcdp("each", 4, scope="unit/*")])
    assert running.charge("tablets", "u", {**ONE, "units": ["tablet:1"]}).status_code == 201
    freeze(running, "~units/tablets/0000")
    visitor.expected = ("503",)
    _see(visitor, "/datasets/tablets")
    trouble = visitor.page.locator("#trouble")
    expect(trouble).to_contain_text("Shard 0 is frozen")
    expect(trouble).to_contain_text("The open holds are not shown")
    expect(visitor.page.locator("#holds-panel")).to_be_hidden()
    expect(_budget(visitor, "each")).to_be_visible()


def test_a_budget_that_takes_nothing_more_is_exhausted(visitor) -> None:
    """Where it is shown as 100 %, though a last bit of it is left."""
    _see(visitor, "/datasets/full")
    row = _budget(visitor, "life")
    expect(row.locator(".bar-share")).to_have_text("100 %")
    expect(row.locator(".chip")).to_have_text("Exhausted")
    visitor.open("/")
    card = visitor.page.locator(".card", has_text="full").first
    expect(card.locator("[data-budget=life] .chip")).to_have_text("Exhausted")
    expect(visitor.page.locator("#summary")).to_contain_text("with an exhausted budget")


def test_a_reading_above_a_limit_that_is_kept_says_why(visitor, running: Live) -> None:
    _see(visitor, "/datasets/full")
    now = running.ask("GET", "/v1/datasets/full/odometer").json()["readings"]
    epsilon = next(each["value"] for each in now if each["name"] == "if_stopped_now")
    assert epsilon > 4
    note = visitor.page.locator("#reading .above-note")
    expect(note).to_contain_text("above the limit of life (ε 4 of 4), but the limit is kept")
    expect(note).to_contain_text("weights")
    visitor.open("/datasets/shared")
    expect(visitor.page.locator("#reading")).to_contain_text("if stopped now")
    expect(visitor.page.locator("#reading .above-note")).to_have_count(0)
    visitor.picture("full")


def test_a_principal_has_one_epsilon_on_a_page_and_one_line_of_why_its_budget_differs(visitor) -> None:
    """The comparison as plans fixed in advance is for datasets where no budget is for each principal."""
    _see(visitor, "/datasets/full")
    expect(_panel(visitor, "principal")).to_contain_text("A budget counts with its own weights")
    expect(visitor.page.locator("#principals")).to_be_hidden()
    expect(visitor.page.locator("#mechanisms")).to_be_visible()
    visitor.open("/datasets/regions")
    expect(visitor.page.locator("#principals")).to_be_visible()


def test_what_the_chart_does_not_draw_is_said(visitor) -> None:
    _see(visitor, "/datasets/full")
    expect(visitor.page.locator("#history .undrawn")).to_contain_text("Not drawn: day, each.")


def test_nothing_used_is_an_empty_bar(visitor, running: Live) -> None:
    running.open("untouched")
    _see(visitor, "/datasets/untouched")
    assert _budget(visitor, "life").locator(".bar-full").evaluate("each => each.offsetWidth") == 0


def test_the_overview_shows_what_is_held(visitor) -> None:
    _see(visitor, "/")
    card = visitor.page.locator(".card", has=visitor.page.get_by_role("link", name="shared"))
    expect(card.locator("[data-budget=life] .bar-held")).to_be_visible()
    expect(card.locator("[data-budget=life]")).to_contain_text("of which held")


def test_a_dataset_by_unit_says_where_its_charges_are(visitor) -> None:
    _see(visitor, "/")
    card = visitor.page.locator(".card", has=visitor.page.get_by_role("link", name="phones"))
    expect(card).to_contain_text("the charges in its shards")
    visitor.open("/datasets/phones")
    expect(visitor.page.locator("#facts")).to_contain_text("the charges in the shards")


@pytest.mark.parametrize("name", ["shared", "regions", "phones", "full"])
def test_nothing_leaves_its_card_on_a_phone(visitor, name: str) -> None:
    visitor.page.set_viewport_size({"width": 390, "height": 800})
    for path in ("/", f"/datasets/{name}"):
        visitor.open(path)
        if path == "/":
            visitor.sign_in()
        expect(visitor.page.get_by_role("button", name="Refresh")).to_be_enabled()
        outside = visitor.page.evaluate(
            """() => [...document.querySelectorAll(".panel button, .panel input, .panel .chip, .panel dd")]
              .filter((each) => each.offsetParent !== null && !each.closest(".segments, .scroll"))
              .filter((each) => {
                const card = each.closest(".panel").getBoundingClientRect();
                const box = each.getBoundingClientRect();
                return box.left < card.left - 0.5 || box.right > card.right + 0.5;
              }).map((each) => each.outerHTML.slice(0, 120))"""
        )
        assert outside == []


def test_the_description_of_the_api_is_dark_in_the_dark(visitor) -> None:
    page = visitor.page
    page.emulate_media(color_scheme="dark")
    visitor.open("/docs")
    expect(page.locator(".opblock").first).to_be_visible()
    visitor.picture("docs-dark")
    lightest = page.evaluate(
        """() => Math.max(...[...document.querySelectorAll("html, body, #swagger, .swagger-ui, .opblock")]
          .map((each) => getComputedStyle(each).backgroundColor.match(/[\\d.]+/g).map(Number))
          .filter(([, , , alpha]) => alpha === undefined || alpha > 0.5)
          .map(([red, green, blue]) => Math.max(red, green, blue)))"""
    )
    assert lightest < 100
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).not_to_have_class("dark-mode")


@pytest.mark.parametrize("name", ["shared", "regions", "phones", "frozen"])
def test_every_page_is_narrow_enough_for_a_phone_and_dark_too(visitor, name: str) -> None:
    visitor.expected = ("503",)
    visitor.page.emulate_media(color_scheme="dark")
    visitor.page.set_viewport_size({"width": 390, "height": 800})
    _see(visitor, f"/datasets/{name}")
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390
    visitor.picture(f"narrow-{name}")


@pytest.mark.parametrize("path", ["/", "/datasets/shared", "/datasets/phones", "/datasets/frozen"])
def test_every_field_and_region_has_a_name_and_ids_are_unique(visitor, path: str) -> None:
    visitor.expected = ("503",)
    _see(visitor, path)
    if path == "/":
        expect(visitor.page.locator("#datasets article").first).to_be_visible()
    wrong = visitor.page.evaluate(
        """() => {
          const named = (e) => e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") ||
            e.labels?.length || e.textContent.trim();
          const parts = "input:not([type=hidden]), button, [role=region], [role=meter], section";
          const bad = [...document.querySelectorAll(parts)]
            .filter((e) => e.checkVisibility() && !named(e)).map((e) => e.outerHTML.slice(0, 80));
          const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
          const missing = [...document.querySelectorAll("[aria-labelledby]")]
            .filter((e) => !document.getElementById(e.getAttribute("aria-labelledby")))
            .map((e) => e.outerHTML.slice(0, 80));
          return [...bad, ...missing, ...ids.filter((id, i) => ids.indexOf(id) !== i)];
        }"""
    )
    assert wrong == []


def test_a_share_of_an_approximate_budget_is_given_no_amount_in_epsilon(visitor, running: Live) -> None:
    budget = {"name": "life", "kind": "approximate", "epsilon": 3, "delta": 1e-6, "reserved": {"ads": 0.5}}
    running.open("mixed", budgets=[budget])
    _see(visitor, "/datasets/mixed")
    rows = visitor.page.locator("#shares tbody tr")
    expect(rows.first).to_contain_text(re.compile(r"ads\s*50 %\s*–"))
    expect(visitor.page.locator("#shares")).to_contain_text("does not mean half of ε")
