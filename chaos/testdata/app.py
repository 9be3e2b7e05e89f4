"""An application with a table of its own beside the outbox.

app.py DB version
app.py DB paced N TOOL        N transactions with pauses, every fifth rolled back
app.py DB bulk N TOOL         one transaction with N intents
app.py DB many N TOOL         N transactions without pauses

Each writes one JSON line per transaction, or one at the end: times in Unix
microseconds.
"""
import json
import sqlite3
import sys
import time


def now():
    return int(time.time() * 1e6)


def intend(db, tool, key):
    db.execute("INSERT INTO shop_order (name) VALUES (?)", (key,))
    db.execute(
        "INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)"
        " VALUES ('acme', 'shop', ?, ?, ?)",
        (tool, key, json.dumps({"order": key, "lines": [1, 2]})),
    )


def one(db, tool, key, end):
    began = now()
    db.execute("BEGIN IMMEDIATE")
    intend(db, tool, key)
    before = now()
    db.execute(end)
    return {"key": key, "end": end, "began": began, "before": before, "after": now()}


def main(path, mode, n=0, tool=""):
    if mode == "version":
        print(sqlite3.sqlite_version)
        return
    db = sqlite3.connect(path, timeout=5, isolation_level=None)
    db.execute("CREATE TABLE IF NOT EXISTS shop_order (id INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT")
    n = int(n)
    if mode == "paced":
        for i in range(n):
            print(json.dumps(one(db, tool, f"paced-{i}", "ROLLBACK" if i % 5 == 4 else "COMMIT")), flush=True)
            time.sleep(0.02)
    elif mode == "bulk":
        db.execute("BEGIN IMMEDIATE")
        for i in range(n):
            intend(db, tool, f"bulk-{i}")
        db.execute("COMMIT")
    elif mode == "many":
        locked, longest, began = 0, 0, now()
        for i in range(n):
            try:
                t = one(db, tool, f"many-{i}", "COMMIT")
                longest = max(longest, t["after"] - t["began"])
            except sqlite3.OperationalError as e:
                locked += 1
                print(e, file=sys.stderr)
        print(json.dumps({"locked": locked, "longest": longest, "began": began, "after": now()}))


main(*sys.argv[1:])
