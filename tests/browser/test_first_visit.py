"""The dashboard of a service that has nothing in it yet."""

from playwright.sync_api import expect


def test_an_empty_service_says_how_to_open_a_dataset(visitor) -> None:
    visitor.open("/")
    visitor.sign_in()
    expect(visitor.page.locator("#datasets")).to_contain_text("No datasets yet")
    expect(visitor.page.locator("#datasets")).to_contain_text("odometer dataset create")
    visitor.picture("empty")
