"""Gives back unused steps wherever a process ends in order: exit, an exception, SIGTERM, garbage collection.

A process that is killed, or ends by os._exit, gives back nothing: what it held stays spent.
"""

import atexit
import os
import signal
import threading
import weakref
from types import FrameType
from typing import Any, Final

from odometer_client.blocks import Blocks
from odometer_client.client import Client

_open: Final["weakref.WeakSet[Blocks]"] = weakref.WeakSet()
_SIGTERM_STATUS: Final = 128 + signal.SIGTERM


def give_back_at_the_end(owner: Any, blocks: Blocks, client: Client | None, *, sigterm: bool) -> None:
    """Settle `blocks` when its process, its client or `owner` ends.

    sigterm: let SIGTERM end the process in order, with status 143, where nothing else handles it. Whoever has
    a handler keeps it: when that ends the process in order, unused steps come back, too.
    """
    if client is None:
        return  # a rank that does not pay
    _open.add(blocks)
    client.before_close(blocks.end)
    weakref.finalize(owner, _collected, blocks).atexit = False
    if sigterm and threading.current_thread() is threading.main_thread():
        _handle_sigterm()


@atexit.register
def _at_exit() -> None:
    for blocks in list(_open):
        blocks.end()


def _collected(blocks: Blocks) -> None:
    """In a thread of its own: garbage is collected anywhere, also while a request holds its locks."""
    if blocks.unsettled:
        threading.Thread(target=blocks.end, name="odometer-give-back").start()


def _handle_sigterm() -> None:
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    installed = os.getpid()

    def end_in_order(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != installed:  # a forked worker dies as it would have
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        raise SystemExit(_SIGTERM_STATUS)

    signal.signal(signal.SIGTERM, end_in_order)
