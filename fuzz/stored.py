"""Commands on texts, folders and archives: random models with data, most of them with a
mistake, and random options.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from math import prod
from random import Random

from fuzz.documents import MUTATIONS, TOKEN, corpus, mutation, network
from fuzz.inputs import Command, Input
from fuzz.options import check_options, command_options
from fuzz.places import EVIL, SECRET, output
from fuzz.tars import DAMAGE, END, Member, compress, extended, packed

MODEL = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    w = variable(shape = [3, 4], label = 'dense/w');
    bias = variable(shape = [1, 4], label = 'Dense/Bias');
    gain = variable(shape = [1, 4], label = 'gain');
    h = matmul(x, w);
    s = add(h, bias);
    a = relu(s);
    y = mul(a, gain);
}
"""
TYPED = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    mask = variable<logical>(shape = [1, 3], label = 'mask');
    index = variable<integer>(shape = [2], label = 'index');
    v = variable(shape = [], label = 'v');
    z = select(mask, x, 0.0);
    p = gather(z, index, axis = 0);
    y = mul(p, v);
}
"""
LARGEST = 5000


@lru_cache(maxsize=1)
def small() -> list[str]:
    """The documents of the corpus that are quickly compiled, the two above among them."""
    return [*[MODEL, TYPED] * 40, *(t for t in corpus() if len(t) < LARGEST)]


# ---- Data ----

_VARIABLE = re.compile(
    r"variable(?:<(\w+)>)?\(\s*shape = \[([\d, ]*)\],\s*label = '([^']*)'"
)
_CODES = {"": 0, "scalar": 0, "integer": 4, "logical": 5}
_BITS = {0: 32, 4: 32, 5: 8}
_HEADER = struct.Struct("<2s2sII8III76x")
# The fields of a header: the offset and the length.
_FIELDS = [(0, 2), (2, 2), (4, 4), (8, 4), (12, 4), (16, 4), (40, 4), (44, 4), (48, 4)]


def tensors(rng: Random, text: str) -> list[Member]:
    """The data of the variables of a text."""
    return [
        Member(f"{label}.dat", tensor(rng, _extents(shape), _CODES.get(dtype, 0)))
        for dtype, shape, label in _VARIABLE.findall(text)
    ]


def _extents(shape: str) -> list[int]:
    return [int(extent) for extent in shape.split(",") if extent.strip()]


def tensor(rng: Random, shape: list[int], code: int = 0) -> bytes:
    """A tensor file of small values."""
    shape, bits = shape[:8], _BITS[code]
    count = min(prod(shape), LARGEST)
    items = [rng.choice([0, 1]) for _ in range(count)]
    kind = {0: "f", 4: "i", 5: "B"}[code]
    data = struct.pack(f"<{count}{kind}", *items)
    extents = [min(e, 2**32 - 1) for e in shape] + [0] * (8 - len(shape))
    head = (b"\x4e\xef", b"\x01\x00", len(data), len(shape), *extents, bits, code)
    return _HEADER.pack(*head) + data


def _field(rng: Random, data: bytes) -> bytes:
    """Another value of a field of the header."""
    start, length = rng.choice(_FIELDS)
    values = [0, 1, 2, 3, 4, 5, 8, 9, 16, 31, 64, 255, 2**31, 2**32 - 1]
    value = rng.choice(values).to_bytes(8, "little")[:length]
    return data[:start] + value + data[start + length :]


def _other_type(rng: Random, data: bytes) -> bytes:
    """The items are of another type, with as many bits or not."""
    bits, code = rng.choice([1, 7, 8, 16, 32, 64]), rng.randrange(7)
    return data[:44] + struct.pack("<II", bits, code) + data[52:]


def _odd_values(rng: Random, data: bytes) -> bytes:
    """NaN, infinities and garbage."""
    words = [b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\x7f\x7f", b"\1\0\0\0"]
    count = len(data[128:]) // 4
    return data[:128] + b"".join(rng.choice(words) for _ in range(count))


_DATA: list[Callable[[Random, bytes], bytes]] = [
    *[_field, _field, _other_type, _odd_values],
    lambda rng, data: data[: rng.randrange(len(data) + 1)],
    lambda rng, data: data + bytes(rng.choice([1, 4, 1000])),
    lambda rng, _: tensor(rng, [rng.randint(0, 4) for _ in range(rng.randint(0, 9))]),
    lambda _, __: MODEL.encode(),
]

# ---- Texts ----


def mutated(rng: Random, text: str) -> bytes:
    """A text with a few mutations."""
    pieces = TOKEN.findall(text)
    for _ in range(rng.choice([1, 1, 2, 4])):
        rng.choice(MUTATIONS)(rng, pieces)
    return "".join(pieces)[:50_000].encode("utf-8", "surrogatepass")


_QUANTIZERS = [
    "linear_quantize(min = 0.0, max = 1.0, bits = 8)",
    "logarithmic_quantize(max = 1.0, bits = 8)",
    "min_max_linear_quantize(min = 0.0, max = 1.0, bits = 8, signed = false, symmetric = false)",
    "zero_point_linear_quantize(zero_point = 1, scale = 0.5, bits = 8, signed = true, symmetric = true)",
    "nothing(a = 1)",
]


def quantization(rng: Random, text: str) -> Member:
    """Quantization info for some tensors of a text."""
    names = [*re.findall(r"(\w+) =", text), "nothing"]
    lines = [
        f'"{rng.choice(names)}": {rng.choice(_QUANTIZERS)};\n'
        for _ in range(rng.choice([0, 1, 2, 5]))
    ]
    whole = "".join(lines)
    data = mutated(rng, whole) if whole and rng.random() < 0.5 else whole.encode()
    return Member("graph.quant", data)


# ---- Members ----

_NAMES = [
    *["../secret.dat", "a/../../secret.dat", str(EVIL), "C:\\evil.dat", "..\\evil.dat"],
    *["graph.nnef", "graph.quant", "GRAPH.NNEF", "README", "", ".", "..", "a//b.dat"],
    *["n" * 99 + ".dat", "n" * 2000, "d/" * 600 + "v.dat", "\udcff.dat", "é.dat"],
    *[
        "a\nb.dat",
        "con.dat",
        ".dat",
        "gain.dat/in.dat",
        ".graph.nnef.tmp",
        "-o",
        "a b.dat",
    ],
]
_TYPES = [
    *[
        b"0",
        b"1",
        b"2",
        b"2",
        b"5",
        b"6",
        b"3",
        b"4",
        b"7",
        b"S",
        b"Z",
        b"L",
        b"x",
        b"g",
    ]
]
_LINKS = [
    "../secret.dat",
    "/etc/passwd",
    "gain.dat",
    "graph.nnef",
    ".",
    "..",
    "missing",
    "",
]
_RECORDS = [
    *[
        ("path", "../secret.dat"),
        ("path", str(EVIL)),
        ("size", "9" * 20),
        ("path", "é.dat"),
    ],
    *[("size", "-512"), ("size", "1e9"), ("GNU.sparse.major", "1"), ("linkpath", "..")],
    *[("hdrcharset", "BINARY"), ("mtime", "nan"), ("", ""), ("path", "")],
]

Members = list[Member]


def _name(rng: Random, members: Members) -> None:
    """Another name: odd, in other letters, or of another member."""
    place = rng.randrange(len(members))
    old = members[place].name
    new = [*_NAMES, old.upper(), old.lower(), old.title(), f"./{old}", f"model/{old}"]
    members[place] = members[place]._replace(name=rng.choice(new))


_LETTERS: list[Callable[[str], str]] = [str, str.upper, str.lower, str.swapcase]


def _copy(rng: Random, members: Members) -> None:
    """One more member, which has the same name, or the same in other letters."""
    member = rng.choice(members)
    change = rng.choice(_LETTERS)
    members.insert(
        rng.randrange(len(members) + 1), member._replace(name=change(member.name))
    )


def _remove(rng: Random, members: Members) -> None:
    del members[rng.randrange(len(members))]


def _replace_data(rng: Random, members: Members) -> None:
    places = [i for i, m in enumerate(members) if m.name.endswith(".dat")]
    if places:
        place = rng.choice(places)
        data = rng.choice(_DATA)(rng, members[place].data)
        members[place] = members[place]._replace(data=data)


def _replace_text(rng: Random, members: Members) -> None:
    for place, member in enumerate(members):
        if member.name == "graph.nnef":
            data = mutated(rng, member.data.decode(errors="replace"))
            members[place] = member._replace(data=data)


def _add_quantization(rng: Random, members: Members) -> None:
    text = members[0].data.decode(errors="replace")
    members.append(quantization(rng, text))


def _add_odd(rng: Random, members: Members) -> None:
    """A link, a device, a folder, or something unheard of."""
    name = rng.choice([*_NAMES, "gain.dat", "other.dat", "w.dat"])
    odd = Member(name, SECRET, rng.choice(_TYPES), rng.choice(_LINKS))
    members.insert(rng.randrange(len(members) + 1), odd)


def _add_header(rng: Random, members: Members) -> None:
    key, value = rng.choice(_RECORDS)
    header = extended(key, value, rng.choice([b"x", b"x", b"g"]))
    members.insert(rng.randrange(len(members) + 1), header)


def _to_link(rng: Random, members: Members) -> None:
    """A file of the model is a link."""
    place = rng.randrange(len(members))
    kind, link = rng.choice([b"1", b"2"]), rng.choice(_LINKS)
    members[place] = Member(members[place].name, b"", kind, link)


def _add_many(rng: Random, members: Members) -> None:
    count = rng.choice([10, 500, 3000])
    name = rng.choice(["f{}.dat", "d{}/f.dat", "same.dat", "F{}", "d/" * 50 + "{}.dat"])
    members += [Member(name.format(i)) for i in range(count)]


def _shuffle(rng: Random, members: Members) -> None:
    rng.shuffle(members)


_MEMBERS: list[Callable[[Random, Members], None]] = [
    *[_name, _name, _copy, _remove, _replace_data, _replace_data, _replace_data],
    *[_replace_text, _add_quantization, _add_quantization, _add_odd, _add_odd],
    *[_add_header, _to_link, _shuffle],
]


def model(rng: Random) -> tuple[Members, str]:
    """The files of a model, with some mutations, and the text that they began with."""
    document = rng.choice(small())
    members = [Member("graph.nnef", document.encode()), *tensors(rng, document)]
    for _ in range(rng.choice([0, 0, 0, 1, 1, 1, 2, 4])):
        if members:
            rng.choice(_MEMBERS)(rng, members)
    if rng.random() < 0.02:
        _add_many(rng, members)
    return members, document


# More of them take long to make.
MOST_FILES = 300
_IN_FOLDERS = (b"0", b"2", b"5", b"6")

# ---- Commands ----


def _input(
    rng: Random, data: bytes, names: tuple[str, str], document: str, size: int
) -> Input:
    """A command on some data; `names` are the form and the name of the model."""
    form, name = names
    arguments = command_options(rng, document)
    command = Command(form, name, *output(rng), arguments, size)
    return Input(data, command.as_options())


def _small(rng: Random) -> bytes:
    return rng.choice(small()).encode()


def _network(rng: Random) -> bytes:
    return network(rng).encode()


def text(rng: Random) -> Input:
    """A document, from a file or from stdin."""
    data = rng.choice([_small, _network, mutation])(rng)
    form = rng.choice(["file", "file", "stdin"])
    name = rng.choice(
        ["model.nnef", "model.nnef", "model", "model.txt", "-x", "model.quant"]
    )
    shown = data.decode("utf-8", "replace")
    return _input(rng, data, (form, name), shown, len(data))


def archive(rng: Random) -> Input:
    """A .tar or .tgz of random members."""
    members, document = model(rng)
    data = packed(members) + END
    if rng.random() < 0.2:
        data = rng.choice(DAMAGE)(rng, data)
    size = len(data)
    if rng.random() < 0.6:
        data = compress(rng, data)
    name = rng.choice(["model.tgz", "model.tar", "model.tar.gz", "model.nnef", "model"])
    return _input(rng, data, ("file", name), document, size)


def folder(rng: Random) -> Input:
    """A folder of random files."""
    members, document = model(rng)
    # A folder has no headers, and no devices that one may make.
    files = [member for member in members if member.type in _IN_FOLDERS][:MOST_FILES]
    data = packed(files) + END
    kind = rng.choice([("folder", "model")] * 3 + [("beside", "graph.nnef")])
    return _input(rng, data, kind, document, len(data))


def checked(rng: Random) -> Input:
    """A small model with --check."""
    document = rng.choice([MODEL, MODEL, TYPED, network(rng)])
    members = [Member("graph.nnef", document.encode()), *tensors(rng, document)]
    if rng.random() < 0.3:
        _replace_data(rng, members)
    data = packed(members) + END
    out = rng.choice(["-", "out", "out.tgz", "out.nnef"])
    arguments = check_options(rng, document)
    command = Command("folder", "model", out, "nothing", arguments, len(data))
    return Input(data, command.as_options())
