#!/usr/bin/env python3
"""An application in Python whose orders are shipped by outboxd.

The order and the intent to ship it are rows of one SQLite file, written in one
transaction: both are there, or neither. Nothing is called from here. outboxd
sees the commit, carries the intent out, and goes on trying after a crash.

Only the standard library is needed (SQLite 3.37 or later). To try it:

    cd examples/python
    outboxd run --config outboxd.yaml &     # creates shop.db with its own tables
    python3 app.py shop.db place 17 4200    # order 17, 42.00
    python3 app.py shop.db place 18 -1      # refused: no order, and no shipment
    python3 app.py shop.db show 17          # how its shipment stands
    kill %1                                 # drains and ends

This file is also the program that outboxd calls for the tool "ship" (see
outboxd.yaml); a real one would call a carrier.
"""

import json
import os
import sqlite3
import sys


def connect(path):
    """Opens the shop's database: the file that outboxd.yaml names.

    mode=rw, since outboxd creates the file; isolation_level=None, since we say
    BEGIN ourselves; and a timeout, since outboxd writes to the file too. The
    file is in write-ahead mode already: leave it there.
    """
    db = sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None, timeout=5)
    # The default of SQLite, said because an order that a power cut takes back
    # would take its shipment along.
    db.execute("PRAGMA synchronous = FULL")
    db.execute(
        """CREATE TABLE IF NOT EXISTS shop_order (
             number INTEGER PRIMARY KEY,
             cents  INTEGER NOT NULL CHECK (cents > 0)) STRICT"""
    )
    return db


def place(db, number, cents):
    """Records an order and the intent to ship it, or neither."""
    # IMMEDIATE: a transaction that reads first and writes later can fail at
    # once, whatever the timeout, when outboxd commits in between.
    db.execute("BEGIN IMMEDIATE")
    try:
        # The key is the identity of the intent. Said again with the same
        # arguments it changes nothing; with other arguments it is refused, and
        # `outboxd refused list` says why.
        db.execute(
            """INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
               VALUES (?, ?, ?, ?, ?)""",
            ("shop", "orders", "ship", f"order-{number}", json.dumps({"order": number, "cents": cents})),
        )
        db.execute("INSERT INTO shop_order (number, cents) VALUES (?, ?)", (number, cents))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def show(db, number):
    """Tells how the shipment of an order stands: (state, result), or None."""
    # These tables may be read by anybody and are written by outboxd alone.
    return db.execute(
        """SELECT e.state, r.result
             FROM outbox_operation AS o
             JOIN outbox_entry AS e ON e.operation_id = o.id
             LEFT JOIN outbox_receipt AS r ON r.operation_id = o.id
            WHERE o.tenant_id = 'shop' AND o.subject_id = 'orders'
              AND o.tool_name = 'ship' AND o.idempotency_key = ?""",
        (f"order-{number}",),
    ).fetchone()


def ship():
    """What outboxd calls: one JSON line in, one JSON line out.

    It may be called again with the same wire key, after a crash for instance,
    and must not ship twice then: the tool says "idempotent". The file named for
    the key is this carrier's memory.
    """
    call = json.loads(sys.stdin.readline())
    parcel = {"parcel": f"P-{call['arguments']['order']}"}
    os.makedirs("shipped", exist_ok=True)
    try:
        with open(os.path.join("shipped", call["wire_key"]), "x") as memory:
            json.dump(parcel, memory)
    except FileExistsError:
        pass  # shipped before: the answer is the same
    print(json.dumps({"outcome": "applied", "result": parcel}))


def main(args):
    match args:
        case ["ship"]:
            ship()
        case [path, "place", number, cents]:
            try:
                place(connect(path), int(number), int(cents))
            except sqlite3.IntegrityError as why:
                sys.exit(f"order {number} is not placed: {why}")
            print(f"order {number} is placed")
        case [path, "show", number]:
            state, result = show(connect(path), int(number)) or ("no shipment, or not yet", None)
            print(f"order {number}: {state}" + (f", {result}" if result else ""))
        case _:
            sys.exit("usage: app.py DATABASE place NUMBER CENTS | DATABASE show NUMBER")


if __name__ == "__main__":
    main(sys.argv[1:])
