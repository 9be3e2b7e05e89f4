"""Recomputes vectors.json with the standard library alone.

    python3 vectors.py [vectors.json]           check: exit 0 when all agree
    python3 vectors.py --fill [vectors.json]    write the expected digests

It is written from docs/contract.md, not from the Go code: two readings of one
text that agree.
"""

import base64
import hashlib
import json
import os
import re
import sys
from decimal import Decimal

LARGEST = 2**53 - 1


class Refused(Exception):
    pass


def members(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise Refused("duplicate")
    return dict(pairs)


def number(token):
    try:
        value = Decimal(token)
    except ArithmeticError:
        raise Refused("range")
    if value > LARGEST or value < -LARGEST:
        raise Refused("range")
    if Decimal(repr(float(token))) != value:
        raise Refused("changed")
    return float(token)


def constant(_):
    raise Refused("constant")


def depth(text):
    outside = re.sub(r'"(?:[^"\\]|\\.)*"?', "", text, flags=re.S)
    level = deepest = 0
    for c in outside:
        level += (c in "[{") - (c in "]}")
        deepest = max(deepest, level)
    return deepest


def parse(raw):
    if len(raw) > 65536:
        raise Refused("size")
    if raw.startswith((b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")):
        raise Refused("BOM")
    try:
        text = raw.decode("utf-8")
        if depth(text) > 32:
            raise Refused("depth")
        value = json.loads(text, object_pairs_hook=members, parse_int=number,
                           parse_float=number, parse_constant=constant)
    except ValueError as e:
        raise Refused(str(e))
    return value


def write_number(x):
    """ECMAScript's Number::toString, from Python's shortest digits."""
    if x == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(x)).normalize().as_tuple()
    digits = "".join(map(str, digits))
    point = len(digits) + exponent
    if 0 < point <= 21:
        text = digits.ljust(point, "0")
        text = text[:point] + ("." + text[point:] if text[point:] else "")
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        text = digits[0] + ("." + digits[1:] if digits[1:] else "") + "e%+d" % (point - 1)
    return ("-" if sign else "") + text


def write(v):
    if v is None or v is True or v is False:
        return {None: "null", True: "true", False: "false"}[v]
    if isinstance(v, float):
        return write_number(v)
    if isinstance(v, str):
        return json.dumps(v, ensure_ascii=False)
    if isinstance(v, list):
        return "[" + ",".join(map(write, v)) + "]"
    names = sorted(v, key=lambda name: name.encode("utf-16-be"))
    return "{" + ",".join(write(n) + ":" + write(v[n]) for n in names) + "}"


def canonical(raw):
    try:
        return write(parse(raw)).encode("utf-8")
    except UnicodeEncodeError:
        raise Refused("surrogate")


def digest(tag, value):
    body = value if isinstance(value, bytes) else write(value).encode("utf-8")
    return hashlib.sha256(tag.encode("ascii") + b"\0" + body).digest()


def request(v):
    args = json.loads(v["arguments"], parse_int=float)
    r = v["revisions"]
    return digest("outboxd.request.v1", {
        "tenant": v["tenant"], "subject": v["subject"], "tool": v["tool"], "arguments": args,
        "input_revision": r["input"], "output_revision": r["output"], "effect_revision": r["effect"]}).hex()


def binding(v):
    return digest("outboxd.binding.v1", v["members"]).hex()


def approval(v):
    return digest("outboxd.approval.v1", v["members"]).hex()


def package(v):
    """The digests of a package, joined; a package is whole where they are its own."""
    p = json.loads(v["package"], object_pairs_hook=members, parse_int=number, parse_float=number, parse_constant=constant)
    r, origin, accepted = p["revisions"], p["origin"], p["accepted_revisions"]
    req = digest("outboxd.request.v1", {
        "tenant": p["tenant_id"], "subject": p["subject_id"], "tool": p["tool_name"], "arguments": p["arguments"],
        "input_revision": accepted["input"], "output_revision": accepted["output"],
        "effect_revision": accepted["effect"]}).hex()
    res = digest("outboxd.result.v1", p["result"]).hex()
    bound = dict(origin)
    bound.update({name + "_revision": r[name] for name in r})
    bound.update({
        "status_ref": p["status_ref"], "tenant": p["tenant_id"], "subject": p["subject_id"], "tool": p["tool_name"],
        "idempotency_key": p["idempotency_key"], "request_sha256": req, "result_sha256": res,
        "reference": p["reference"]})
    own = p["format"] == "outboxd.package.v1" and [req, res, digest("outboxd.binding.v1", bound).hex()] == [
        p["request_sha256"], p["result_sha256"], p["call_binding_sha256"]]
    return "whole" if own else "other"


def wire_key(v):
    scope = {"tenant": v["tenant"], "subject": v["subject"], "tool": v["tool"], "idempotency_key": v["idempotency_key"]}
    return base64.urlsafe_b64encode(digest("outboxd.wire-key.v1", scope)).rstrip(b"=").decode()


def result(v):
    return digest("outboxd.result.v1", v["result"].encode("utf-8")).hex()


def revision(v):
    value = json.loads(v["covers"], parse_int=float)
    return base64.urlsafe_b64encode(digest("outboxd.revision.%s.v1" % v["kind"], value)[:12]).decode()


EXPECTED = {"request": (request, "sha256"), "result": (result, "sha256"), "binding": (binding, "sha256"),
            "approval": (approval, "sha256"), "package": (package, "verdict"),
            "wire_key": (wire_key, "wire_key"), "revision": (revision, "revision")}


def raw_of(v):
    return bytes.fromhex(v["hex"]) if "hex" in v else v["input"].encode("utf-8")


def main(args):
    fill = "--fill" in args
    paths = [a for a in args if a != "--fill"]
    path = paths[0] if paths else os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors.json")
    with open(path, encoding="utf-8") as f:
        vectors = json.load(f)
    wrong = []
    for v in vectors["canonical"]:
        if canonical(raw_of(v)) != v["canonical"].encode("utf-8"):
            wrong.append("canonical: " + v["name"])
    for v in vectors["refused"]:
        try:
            canonical(raw_of(v))
            wrong.append("refused: " + v["name"])
        except Refused:
            pass
    for group, (compute, field) in EXPECTED.items():
        for v in vectors[group]:
            if fill:
                v[field] = compute(v)
            if compute(v) != v[field]:
                wrong.append(group + ": " + v["name"])
    if fill:
        with open(path, "w", encoding="utf-8") as f:
            json.dump(vectors, f, indent=1, ensure_ascii=True)
            f.write("\n")
    for w in wrong:
        print("differs:", w)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
