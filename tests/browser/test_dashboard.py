"""The dashboard as a person sees it: a real Chromium against a real service with a durable ledger."""

import re

import pytest
from playwright.sync_api import expect

from odometer_client import Client
from odometer_client.mechanisms import Gaussian, Laplace, PoissonSubsampled

MARKUP = "<img src=x onerror=\"document.title='owned'\"><b>Ann</b>"


@pytest.fixture(scope="module", autouse=True)
def datasets(admin: Client) -> None:
    """One dataset with two budgets, one that only counts, and a principal whose name is markup."""
    admin.create_dataset(
        "patients-2026",
        unit="person",
        adjacency="add_remove",
        delta=1e-6,
        budgets=[
            {"name": "lifetime", "kind": "approximate", "epsilon": 3, "delta": 1e-6},
            {"name": "research", "kind": "renyi", "order": 8, "epsilon": 1},
        ],
    )
    admin.create_dataset(
        "sandbox", unit="record", adjacency="replace_one", delta=1e-6, budgets=[], odometer_only=True
    )
    created = admin.create_key("charger", MARKUP)
    with Client(admin.url, created["token"]) as ann:
        for _ in range(30):
            step = PoissonSubsampled(base=Gaussian(noise_multiplier=1.1), sampling_rate=0.01)
            ann.charge("patients-2026", step, 20)
        ann.charge(
            "patients-2026", [(Laplace(scale_over_sensitivity=20.0), 2), (Gaussian(noise_multiplier=9), 1)]
        )


def _used(visitor, name: str) -> float:
    meter = visitor.page.get_by_role("meter", name=f"Budget {name}").first
    value = meter.get_attribute("aria-valuenow")
    assert value is not None
    return float(value)


def _width(visitor, name: str) -> float:
    box = visitor.page.get_by_role("meter", name=f"Budget {name}").first.locator(".bar-full").bounding_box()
    assert box is not None
    return box["width"]


def test_a_wrong_key_is_refused_in_words(visitor) -> None:
    visitor.expected = ("401",)  # Chromium reports the status of the refused form
    visitor.open("/")
    visitor.sign_in("po_not_a_key")
    expect(visitor.page.get_by_role("alert")).to_contain_text("That key is not valid here")
    assert visitor.page.context.cookies() == []
    visitor.page.get_by_label("API key").blur()
    visitor.picture("sign-in-refused")


def test_after_signing_in_a_charge_moves_the_bar_at_the_next_reload(visitor, admin: Client) -> None:
    visitor.open("/")
    visitor.picture("sign-in")
    visitor.sign_in()
    expect(visitor.page.get_by_role("heading", name="patients-2026")).to_be_visible()
    before, width = _used(visitor, "research"), _width(visitor, "research")
    receipt = admin.charge("patients-2026", Gaussian(noise_multiplier=4.0), 2)
    visitor.page.reload()
    expect(visitor.page.get_by_role("heading", name="patients-2026")).to_be_visible()
    after = _used(visitor, "research")
    assert after > before
    assert _width(visitor, "research") > width
    left = next(each for each in receipt.left if each["budget"] == "research")
    assert left["used"] * 100 <= after <= left["used"] * 100 + 0.1001
    visitor.picture("overview")


def test_the_cookie_is_out_of_reach_of_scripts(visitor) -> None:
    visitor.open("/")
    visitor.sign_in()
    expect(visitor.page.get_by_role("heading", name="Datasets")).to_be_visible()
    assert visitor.page.evaluate("document.cookie") == ""
    (cookie,) = visitor.page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")


def test_a_dataset_shows_its_odometer_spend_readings_and_ledger(visitor) -> None:
    page = visitor.page
    visitor.open("/datasets/patients-2026")
    visitor.sign_in()
    expect(page).to_have_url(re.compile(r"/datasets/patients-2026$"))
    expect(page.locator("#chart .main-svg").first).to_be_visible()
    expect(page.locator("#chart .scatterlayer .js-line")).to_have_count(1)
    page.get_by_role("radio", name="Budgets used").check()
    expect(page.locator("#chart .scatterlayer .js-line")).to_have_count(2)
    page.get_by_role("radio", name="By entry").check()
    expect(page.locator("#chart .scatterlayer .js-line")).to_have_count(2)
    visitor.picture("dataset-budgets-over-entries")
    page.get_by_role("radio", name="ε if stopped").check()
    page.get_by_role("radio", name="By time").check()
    expect(page.locator("#mechanisms .share")).to_have_count(3)
    visitor.picture("dataset")


def test_every_reading_says_when_it_holds(visitor) -> None:
    visitor.open("/datasets/patients-2026")
    visitor.sign_in()
    rows = visitor.page.locator("#readings tbody tr")
    expect(rows.first).to_be_visible()
    assert rows.count() >= 5
    for row in rows.all():
        assert row.locator("td").last.inner_text().strip()


def test_the_big_reading_is_never_below_what_the_api_says(visitor, admin: Client) -> None:
    visitor.open("/datasets/patients-2026")
    visitor.sign_in()
    shown = visitor.page.locator("#reading .sr")
    expect(shown).to_contain_text("is ")
    value = next(r for r in admin.odometer("patients-2026")["readings"] if r["name"] == "if_stopped_now")[
        "value"
    ]
    number = float(shown.inner_text().rsplit(" ", 1)[1])
    assert value <= number <= value * 1.001


def test_spent_rounds_up_and_left_rounds_down(visitor) -> None:
    visitor.open("/")
    visitor.sign_in()
    expect(visitor.page.get_by_role("heading", name="Datasets")).to_be_visible()
    module = visitor.page.locator("script[type=module]").get_attribute("src").replace("overview", "numbers")
    wrong = visitor.page.evaluate(
        """async (module) => {
          const { up, down } = await import(module);
          const read = (text) => Number(text.replaceAll("−", "-"));
          const values = [0, 1, 0.1, 9.9995, 9.99949, 1e-12, 1 / 3, 2 / 3, 99999.9, 123456789.1, 5e-324];
          for (let i = 0; i < 2000; i++) values.push(10 ** (12 * Math.random() - 10));
          return values.filter((v) => !(read(up(v)) >= v && read(down(v)) <= v && read(up(v)) <= 1.002 * v));
        }""",
        module,
    )
    assert wrong == []


def test_markup_in_a_principals_name_stays_text(visitor) -> None:
    visitor.open("/datasets/patients-2026")
    visitor.sign_in()
    expect(visitor.page.locator("#principals .share-name").first).to_be_visible()
    assert MARKUP in visitor.page.locator("#principals .share-name").all_inner_texts()
    assert MARKUP in visitor.page.locator("#ledger .principal").all_inner_texts()
    assert visitor.page.locator("main img, main b").count() == 0
    assert "owned" not in visitor.page.title()


def test_what_was_made_of_a_release_is_in_the_ledger(visitor, admin) -> None:
    life = {"name": "life", "kind": "pure", "epsilon": 1.0}
    admin.create_dataset("made", unit="person", adjacency="add_remove", delta=1e-6, budgets=[life])
    receipt = admin.charge("made", {"kind": "pure", "epsilon": 0.1})
    admin.derive("made", receipt, f"a table {MARKUP}")
    visitor.open("/datasets/made")
    visitor.sign_in()
    newest = visitor.page.locator("#ledger tbody tr").first
    expect(newest).to_contain_text(f"“a table {MARKUP}”")
    expect(newest).to_contain_text("made from entry 2; no charge")
    assert visitor.page.locator("main img, main b").count() == 0


def test_steps_of_sessions_are_said_in_the_words_of_their_kind(visitor, admin) -> None:
    """A query on votes is answered or is without consensus; a sparse vector's is above its threshold."""
    life = {"name": "life", "kind": "zcdp", "rho": 100.0}
    admin.create_dataset("steps", unit="person", adjacency="replace_one", delta=1e-6, budgets=[life])
    noise = {"noise_multiplier_check": 9.0, "noise_multiplier_answer": 9.0}
    votes = admin.open_session("steps", {"kind": "confident_gnmax", "max_answers": 2, **noise})
    for above in (True, False, True):
        votes.answer(above)
    epsilons = {"epsilon_threshold": 0.1, "epsilon_answers": 0.2}
    runs = admin.open_session("steps", {"kind": "sparse_vector", "max_above": 3, **epsilons})
    runs.answer(True)
    runs.close()
    visitor.open("/datasets/steps")
    visitor.sign_in()
    said = visitor.page.locator("#ledger tbody tr")
    for place, words in enumerate(
        (
            "1 above its threshold; its charges stay",
            "above in run 1",
            "Opens a session: Sparse vector",
            "query 3 answered, its last",
            "query 2 without consensus, not answered",
            "query 1 answered",
            "Opens a session: Confident-GNMax",
        )
    ):
        expect(said.nth(place)).to_contain_text(words)
    expect(visitor.page.locator("#ledger")).not_to_contain_text("below")


def test_the_ledger_turns_pages_newest_first(visitor) -> None:
    page = visitor.page
    visitor.open("/datasets/patients-2026")
    visitor.sign_in()
    numbers = page.locator("#ledger tbody td:first-child")
    expect(numbers).to_have_count(20)
    first = int(numbers.first.inner_text())
    page.get_by_role("button", name="Older").click()
    expect(numbers.first).to_have_text(str(first - 20))
    page.get_by_role("button", name="Newer").click()
    expect(numbers.first).to_have_text(str(first))
    expect(page.get_by_role("button", name="Newer")).to_be_disabled()


def test_readings_at_another_delta(visitor) -> None:
    page = visitor.page
    visitor.open("/datasets/patients-2026")
    visitor.sign_in()
    cell = page.locator("#readings tbody tr").first.locator("td.number").nth(1)
    expect(cell).to_have_text("1e−6")
    page.get_by_label("at δ =").fill("1e-5")
    page.get_by_label("at δ =").press("Enter")
    expect(cell).to_have_text("1e−5")
    page.get_by_label("at δ =").fill("7")
    page.get_by_label("at δ =").press("Enter")
    expect(page.locator("#delta-error")).to_contain_text("between 0 and 1")


def test_no_bound_is_said_in_words(visitor, admin: Client) -> None:
    admin.charge("sandbox", {"kind": "non_private", "what": "a debug dump"})
    visitor.open("/datasets/sandbox")
    visitor.sign_in()
    expect(visitor.page.locator("#reading")).to_contain_text("no bound")
    expect(visitor.page.locator("#history")).to_contain_text("there is no bound")
    expect(visitor.page.locator("#budgets")).to_contain_text("refuses nothing")
    visitor.picture("dataset-no-bound")


def test_everything_is_reached_by_keyboard(visitor) -> None:
    page = visitor.page
    visitor.open("/")
    expect(page.get_by_label("API key")).to_be_focused()  # from the start
    page.keyboard.insert_text(visitor.key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="patients-2026")).to_be_visible()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "patients-2026":
            break
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/datasets/patients-2026$"))


def test_an_unknown_dataset_is_said_to_be_unknown(visitor) -> None:
    visitor.expected = ("404",)
    visitor.open("/datasets/nothing-here")
    visitor.sign_in()
    expect(visitor.page.get_by_role("alert")).to_contain_text("Unknown dataset.")


def test_a_store_that_is_away_is_an_honest_banner(visitor) -> None:
    visitor.expected = ("503",)
    problem = '{"title": "The ledger cannot be read", "status": 503, "detail": "The store did not answer."}'
    visitor.open("/")
    visitor.page.route("**/v1/**", lambda route: route.fulfill(status=503, body=problem))
    visitor.sign_in()
    expect(visitor.page.get_by_role("alert")).to_contain_text("The store did not answer.")
    expect(visitor.page.get_by_role("alert")).to_contain_text("it refuses charges and does not guess")
    visitor.picture("store-away")


def test_a_revoked_key_leads_back_to_sign_in(visitor, admin: Client) -> None:
    created = admin.create_key("reader", "soon gone")
    visitor.expected = ("401",)
    visitor.open("/")
    visitor.sign_in(created["token"])
    expect(visitor.page.get_by_role("heading", name="patients-2026")).to_be_visible()
    admin.revoke_key(created["id"])
    visitor.page.get_by_role("button", name="Refresh").click()
    expect(visitor.page.get_by_label("API key")).to_be_visible()


def test_signing_out_ends_the_visit(visitor) -> None:
    visitor.open("/")
    visitor.sign_in()
    visitor.page.get_by_role("button", name="Sign out").click()
    expect(visitor.page.get_by_label("API key")).to_be_visible()
    visitor.open("/")
    expect(visitor.page.get_by_label("API key")).to_be_visible()


def test_dark_and_narrow(visitor) -> None:
    page = visitor.page
    page.emulate_media(color_scheme="dark")
    visitor.open("/datasets/patients-2026")
    visitor.sign_in()
    expect(page.locator("#chart .main-svg").first).to_be_visible()
    expect(page.locator("#ledger tbody tr").first).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor") == "rgb(17, 22, 28)"
    visitor.picture("dataset-dark")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    visitor.picture("dataset-narrow")


def test_the_api_docs_work_without_a_network(visitor) -> None:
    page = visitor.page
    visitor.open("/docs")
    operation = page.locator(".opblock", has_text="/charges").first
    expect(operation).to_be_visible()
    operation.locator(".opblock-summary-control").first.click()
    expect(operation.locator(".opblock-body")).to_be_visible()
    visitor.picture("docs")
