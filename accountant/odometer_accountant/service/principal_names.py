"""Names of principals: what one may be, when two are the same, and whose a name is, for ever.

A name is personal data. It lives in a note that can be erased, and the entries hold hashes of it:

* `name_hash`, salted for each principal: that the note is the one that was meant;
* `name_claim`, keyed with a secret of the ledger that is in a note too: that a name is used already, also
  when its note was erased. Without that note nobody can try names on the entries.
"""

import hashlib
import hmac
import re
import secrets
import unicodedata
from collections.abc import Mapping
from itertools import islice
from typing import Final

from odometer_accountant.errors import InvalidRequest, NameTaken
from odometer_accountant.ledger.blobs import scope_blob
from odometer_accountant.ledger.principals import Principal, Register, is_minted, is_reserved
from odometer_accountant.plain_text import fault
from odometer_accountant.scopes import NAME
from odometer_accountant.service.request_checks import is_slug
from odometer_accountant.stores import Note, Store

_SHOWN: Final = 5
_PAGE: Final = 1000
_NAME: Final = re.compile(NAME)
"""What a charge can be on behalf of."""


def clean(name: str) -> str:
    """The name as it is kept: composed (NFC), without blanks around it, blanks within it single.

    Raises InvalidRequest for one that is empty, has a character nobody sees, or is like an id.
    """
    said = fault(name)
    if said is not None:
        raise InvalidRequest.of("name", said)
    kept = " ".join(unicodedata.normalize("NFC", name).split())
    if is_reserved(kept):
        raise InvalidRequest.of("name", f"{kept} is what the ledger calls itself: take another one")
    if is_minted(kept):
        raise InvalidRequest.of("name", f"{kept} has the form of an id, which it is not: take another one")
    return kept


def folded(name: str) -> str:
    """The normal form by which two names are compared: compatible forms (NFKC) without upper case."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).split())


def name_hash(note: Note) -> str:
    """As the entries keep it of a note."""
    return hashlib.sha256((note.salt + note.text).encode()).hexdigest()


class NameBook:
    """The owner of each name. What it needs of the store is read by `learn`, so that `owners` is quick."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._secrets: dict[str, Note] = {}
        self._unclaimed: dict[str, list[str]] = {}
        """Principals whose entries claim no name, by what a note calls them; doubles of old are several."""
        self._seen = 0

    def learn(self, register: Register) -> None:
        """Read the notes of principals and secrets that are new in `register`. Raises StoreUnavailable."""
        unseen = list(islice(register.principals.values(), self._seen, None))  # the newest come last
        new = [one.id for one in unseen if one.name_hash and not one.claimed]
        unread = [name for name in register.secrets if name not in self._secrets]
        if not new and not unread:
            self._seen += len(unseen)
            return
        notes = self._store.notes([*new, *unread])
        self._seen += len(unseen)
        for name in new:
            if name in notes:
                self._unclaimed.setdefault(folded(notes[name].text), []).append(name)
        self._secrets |= {name: notes[name] for name in unread if name in notes}

    def owners(self, name: str, register: Register) -> list[Principal]:
        """The principals that have, or had, that name: one, but for doubles of old."""
        same = folded(name)
        found = list(self._unclaimed.get(same, ()))
        for secret, note in self._secrets.items():
            owner = register.claims.get((secret, _claim(note, same)))
            if owner is not None and owner not in found:
                found.append(owner)
        return [register.principals[one] for one in found if one in register.principals]

    def require_free(self, name: str, register: Register) -> None:
        """Raise NameTaken when a principal has, or had, that name."""
        found = self.owners(name, register)
        if not found:
            return
        ids = [one.id for one in found]
        whose = f"{' and '.join(ids[:_SHOWN])}{' and others' if len(ids) > _SHOWN else ''}"
        if all(one.erased for one in found):
            raise NameTaken(
                f"the name was that of {whose}, was erased, and is not used again: take another one",
                principals=ids,
            )
        raise NameTaken(
            f"{name!r} is the name of {whose}, which keeps what it spent: give it one more key "
            f"(`odometer key add {ids[0]}`, POST /v1/principals/{ids[0]}/keys), or take another name",
            principals=ids,
        )

    def require_uncharged(self, name: str) -> None:
        """Raise NameTaken when something was charged on behalf of that name, which was nobody's then.

        Who charges for others may have used it: its odometer would be left behind, and its owner begin anew.
        """
        spelt = filter(_NAME.fullmatch, {name, name.casefold(), folded(name)})
        blobs = [scope_blob(f"principal/{one}") for one in spelt]
        after = ""
        while blobs and (page := self._store.streams(after, _PAGE)):
            for stream in filter(is_slug, page):
                if self._store.load(stream, blobs)[1]:
                    raise NameTaken(
                        f"dataset {stream} has charges on behalf of {name!r}, which was nobody's name: they "
                        "would not count for a principal that is called so now. Take another name",
                        principals=[],
                    )
            after = page[-1]

    def claim(self, name: str, register: Register) -> Mapping[str, str]:
        """The fields of an entry that make the name its principal's own."""
        secret = next((one for one in self._secrets if one in register.secrets), None)
        secret = secret or self._new_secret()
        note = self._secrets[secret]
        return {
            "names_key": secret,
            "names_key_hash": name_hash(note),
            "name_claim": _claim(note, folded(name)),
        }

    def _new_secret(self) -> str:
        """If two processes both create one, the ledger keeps the one whose entry comes first."""
        mine = next(iter(self._secrets), None)
        if mine is not None:
            return mine
        name, note = f"n_{secrets.token_hex(8)}", Note(secrets.token_hex(16), secrets.token_hex(32))
        self._store.put_note(name, note)
        self._secrets[name] = note
        return name


def _claim(secret: Note, same: str) -> str:
    return hmac.digest(secret.text.encode(), same.encode(), "sha256").hex()
