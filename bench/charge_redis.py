"""The same question as charge.py, for a ledger in Redis: `charge.py --store redis`."""

import sys

import charge

if __name__ == "__main__":
    sys.exit(charge.main("redis"))
