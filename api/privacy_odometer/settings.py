"""The settings of the service. Each is an environment variable with the prefix ODOMETER_."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """How `odometer serve` runs. Command-line options override the environment."""

    model_config = SettingsConfigDict(env_prefix="ODOMETER_", use_attribute_docstrings=True, extra="ignore")

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8790, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    store: str = "sqlite:///data/ledger.sqlite"
    """Where the ledger is kept: sqlite:///relative/path, sqlite:////absolute/path, memory:// for tests, or a
    Redis: redis://, rediss://, redis+sentinel:// or redis+cluster://."""
    allow_volatile_store: bool = False
    """Serve on a Redis even when its settings let it lose what it acknowledged. For tests: a loss that is
    forgotten is spent a second time."""
    witness: str = ""
    """A file that remembers how far the ledger was, so that an older copy of it is known for one: not beside
    the ledger, and not in its backups. `none` for none. Unless given, `odometer serve` keeps it in
    privacy-odometer/witness.jsonl below XDG_STATE_HOME (~/.local/state)."""
    slow_after_s: float = Field(default=10.0, gt=0, le=600)
    """Seconds after which an append that has not returned counts as unsure: its callers get 503."""
    key_refresh_s: float = Field(default=1.0, gt=0, le=60)
    """Seconds after which a key that another process revoked stops working here."""
    https: bool = False
    """Browsers reach this service over https, by a proxy in front of it: the dashboard's cookie is then one
    that only https can set and carry."""
    sign_in_s: float = Field(default=8 * 3600, ge=60, le=7 * 86_400)
    """Seconds after which a browser has to sign in to the dashboard again; eight hours unless said."""
    connections_max: int = Field(default=1000, ge=10, le=100_000)
    """Connections at a time. One more makes whoever has waited longest without a request give way."""
    log_level: str = Field(default="info", pattern="^(critical|error|warning|info|debug)$")
    """How much the operational log says."""
