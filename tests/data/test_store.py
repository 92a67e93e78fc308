"""The store: keys, cached artifacts, damage, failures and concurrent runs."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from conftest import PROJECT
from steps import CALLS, Text, write

from phrasemodels import project
from phrasemodels.config import to_json
from phrasemodels.data.store.artifacts import (
    MANIFEST,
    made_elsewhere,
    parse_manifest,
    this_machine,
    with_digest,
    write_durably,
)
from phrasemodels.data.store.fingerprint import closure, forget
from phrasemodels.data.store.gc import damage, leased_keys, waste
from phrasemodels.data.store.store import INDEX, Job, Step, Store
from phrasemodels.flows.results.records import records
from phrasemodels.layers.attention import identity
from phrasemodels.tasks.prepare.sharded import write_shards


def test_steps_are_made_once_and_in_order(store: Store) -> None:
    CALLS.clear()
    first = Step(write, "first", Text("a"))
    second = Step(write, "second", Text("b"), {"before": first})
    assert store.run(second).file("text").read_text() == "ab"
    store.run(second)
    store.run(first)
    assert CALLS == ["a", "b"]


@pytest.mark.parametrize("what", ["manifest.json", "text", "."])
@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "socket"])
@pytest.mark.timeout(60)
def test_no_pipe_folder_or_loop_of_links_stops_the_store(store: Store, kind: str, what: str) -> None:
    step = Step(write, "step", Text("abc"))
    place = store.run(step).path / what
    shutil.rmtree(place) if what == "." else place.unlink()
    put = {"pipe": os.mkfifo, "folder": os.mkdir, "loop": lambda path: os.symlink(path.name, path), "socket": listening}
    put[kind](place.absolute())
    for look in (damage, waste, leased_keys, records):
        look(store)
    assert store.find(step) is None
    assert store.run(step).file("text").read_text() == "abc"


def listening(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def test_pipes_among_leases_and_records_are_no_runs(store: Store) -> None:
    for folder in ("leases", "runs"):
        (store.root / folder).mkdir()
        os.mkfifo(store.root / folder / "a.json")
        os.mkfifo(store.root / folder / "a.lock")
    assert leased_keys(store) == set()
    assert [record["state"] for record in records(store)] == ["damaged"]


def test_a_manifest_is_synced_to_the_disk_before_it_is_renamed(tmp_path: Path, monkeypatch) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("sync"), sync(file)))
    monkeypatch.setattr(os, "replace", lambda one, other: (done.append("rename"), replace(one, other)))
    write_durably(tmp_path / "manifest.json", "{}")
    assert done == ["sync", "rename"] and (tmp_path / "manifest.json").read_text() == "{}"


def test_no_lock_file_is_left_by_a_step(store: Store) -> None:
    store.run(Step(write, "step", Text("abc")))
    assert not list(store.root.glob("locks/*"))


def several(job: Job, settings: Text) -> dict:
    for name in ("a", "n", "z/manifest.json"):
        (job.out / name).parent.mkdir(exist_ok=True)
        (job.out / name).write_text(settings.text)
    return {}


def test_a_manifest_names_every_file_and_no_text_that_cannot_be_written(store: Store) -> None:
    made = store.run(Step(several, "several", Text("x")))
    assert sorted(made.manifest["files"]) == ["a", "n", "z/manifest.json"]
    text = (made.path / "manifest.json").read_text(encoding="utf-8")
    assert parse_manifest(text.encode()) == made.manifest
    assert parse_manifest(text.replace('"several"', '"\\ud800"').encode()) is None


def test_another_kind_of_processor_is_named() -> None:
    assert [made_elsewhere({"machine": kind}) for kind in ("", "~", this_machine(), 3)] == ["", "~", None, None]


@pytest.mark.parametrize("damage", ["delete", "flip", "truncate", "manifest"])
def test_a_damaged_artifact_is_not_used_and_is_made_again(store: Store, damage: str) -> None:
    step = Step(write, "step", Text("abc"))
    file = store.run(step).file("text")
    manifest = file.parent / "manifest.json"
    {
        "delete": file.unlink,
        "flip": lambda: file.write_text("abd"),
        "truncate": lambda: file.write_text("ab"),
        "manifest": lambda: manifest.write_text(manifest.read_text()[:40]),
    }[damage]()
    assert store.find(step) is None
    assert store.run(step).file("text").read_text() == "abc"


@pytest.mark.parametrize("changed_entries", [{}, {"key": Step(write, "step", Text("abc")).key}])
def test_an_artifact_copied_over_another_is_not_used_and_is_reported(
    store: Store, changed_entries: dict[str, str]
) -> None:
    step, other = Step(write, "step", Text("abc")), Step(write, "other", Text("abd"))
    place = store.run(step).path
    shutil.copytree(store.run(other).path, place, dirs_exist_ok=True)
    manifest = json.loads((place / "manifest.json").read_text()) | changed_entries
    (place / "manifest.json").write_text(json.dumps(with_digest(manifest)))
    assert [(found.key, what) for found, what, _ in damage(store)] == [(step.key, f"{place}: no manifest of its own")]
    assert store.find(step) is None
    assert store.run(step).file("text").read_text() == "abc"
    assert damage(store) == []


@pytest.mark.parametrize("damage", ["", "no digest\n{}", "cut off", "another form", "a pipe"])
def test_an_index_has_what_the_manifests_have_and_is_made_again(damage: str, store: Store) -> None:
    first, second = (store.run(Step(write, f"write {text}", Text(text))) for text in "ab")
    assert {one.key for one in store.indexed()} == {first.key, second.key}
    index = store.root / INDEX
    other = json.dumps({name: [stamp, {}] for name, (stamp, _) in json.loads(index.read_bytes()[65:]).items()})
    wholes = {
        "another form": f"{hashlib.sha256(other.encode()).hexdigest()}\n{other}",
        "cut off": index.read_text()[:-9],
    }
    if damage == "a pipe":
        index.unlink()
        os.mkfifo(index)
    elif damage:
        index.write_text(wholes.get(damage, damage))
    changed = with_digest({**second.manifest, "meta": {"text": "changed since"}})
    (second.path / MANIFEST).write_text(json.dumps(changed))
    found = {one.key: one for one in store.indexed()}
    assert [found[one.key].meta for one in (first, second)] == [first.meta, changed["meta"]]
    shutil.rmtree(first.path)
    assert [one.key for one in store.indexed()] == [second.key]


def test_an_index_is_read_in_place_of_manifests_that_did_not_change(store: Store, monkeypatch) -> None:
    step = Step(write, "write", Text("a"))
    made = store.run(step)
    (left := store.root / f".{INDEX}.1-{'a' * 12}").touch()  # by a killed process
    first = store.indexed()
    written = (store.root / INDEX).stat().st_mtime_ns
    os.utime(made.path / MANIFEST, (1, 1))  # as a use of the artifact does
    monkeypatch.setattr(Store, "_local", None)
    assert store.indexed() == first and [one.key for one in first] == [step.key]
    assert (store.root / INDEX).stat().st_mtime_ns == written and not left.exists()


def test_private_files_of_libraries_get_the_mode_of_the_users_umask(store: Store) -> None:
    made = store.run(Step(private, "private"))
    plain = store.root / "plain"
    plain.touch()
    assert made.file("weights").stat().st_mode == plain.stat().st_mode


def private(job: Job, settings: None) -> dict:
    (job.out / "weights").touch(0o600)
    return {}


def test_settings_and_inputs_are_in_the_key() -> None:
    keys = {
        Step(write, "x", Text("a")).key,
        Step(write, "x", Text("b")).key,
        Step(write, "x", Text("a"), {"i": Step(write, "y", Text("c"))}).key,
        Step(write, "x", Text("a"), {"i": Step(write, "y", Text("d"))}).key,
    }
    assert len(keys) == 4
    assert Step(write, "another label", Text("a")).key in keys


def test_the_key_of_a_partial_holds_its_function_and_its_arguments() -> None:
    parts = (partial(Text, "a"), partial(Text, "b"), partial(Text, text="a"))
    assert len({Step(write, "x", part).key for part in parts}) == 3
    assert to_json(parts[2]) == {"partial": ["steps:Text", [], {"text": "a"}]}
    assert closure(partial(identity, 1)) == closure(identity)
    with pytest.raises(ValueError, match=r"Tanh\(\) in a configuration.*use a function of a module"):
        to_json(torch.nn.Tanh())
    for nameless in (lambda: 1, Text("a").__repr__, partial(lambda: 1)):
        with pytest.raises(ValueError, match="has no name of its own"):
            to_json(nameless)
    made = dataclasses.make_dataclass("Text", ["text"], frozen=True, namespace={"__module__": "steps"})  # another's name
    for other in (functools.wraps(identity)(lambda x: 2 * x), made, made("a")):
        with pytest.raises(ValueError, match=r"in a configuration isn't what .* is: define it in its module"):
            to_json(other)


def fail(job: Job, settings: None) -> dict:
    (job.out / "half").write_text("half")
    raise ValueError("no")


def test_a_failed_step_leaves_no_files(store: Store) -> None:
    step = Step(fail, "fail")
    with pytest.raises(ValueError, match="no") as failed:
        store.run(step)
    assert store.find(step) is None
    assert not list(store.root.rglob("half"))
    assert failed.value.__notes__ == ["fail"]


def write_records(job: Job, settings: None) -> dict:
    return write_shards(job.out, pa.table({"id": [1]}))


def test_records_without_terms_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="has to return their terms: licences, redistributable, stand_in"):
        store.run(Step(write_records, "records"))


SLOW = """
import sys, time
from pathlib import Path
from phrasemodels.data.store.store import Step
from phrasemodels.data.store.store import Store
def slow(job, settings):
    with (Path(sys.argv[2])).open("a") as log:
        log.write("made\\n")
    (job.out / "text").write_text("x" * 100)
    time.sleep(float(sys.argv[3]))
    return {}
print(Store(Path(sys.argv[1])).open().run(Step(slow, "slow")).key)
"""


def _start(store: Store, log: Path, seconds: float) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", SLOW, str(store.root), str(log), str(seconds)], cwd=PROJECT)


def test_two_concurrent_runs_make_a_step_once(store: Store, tmp_path: Path) -> None:
    processes = [_start(store, tmp_path / "log", 1.0) for _ in range(2)]
    assert [p.wait() for p in processes] == [0, 0]
    assert (tmp_path / "log").read_text() == "made\n"


def test_a_killed_run_leaves_no_artifact_and_no_lock(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = _start(store, log, 600)
    while not log.exists():
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(store.artifacts())
    assert _start(store, log, 0).wait() == 0
    (artifact,) = store.artifacts()
    assert artifact.file("text").read_text() == "x" * 100


def test_an_unwritable_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"file/store cannot be written to .*PHRASEMODELS_STORE"):
        Store(tmp_path / "file" / "store").open()


STUDY = {
    "phrasemodels.toml": "[metrics]\ntried = 'study:tried'\n",
    "study.py": """
import slow as s
from typing import NamedTuple
from spaced.inner import spaced
try:
    from fast import f
except ImportError:
    from slow import f
s.THRESHOLD = 3
class Pair(NamedTuple):
    x: int
    def analyse(self):
        return 'pair'
import json
import os
import re
from importlib import import_module as im
from pathlib import Path
import lab.act
import lab.patches
import lab.table as table
import installed
from lab.starred import *
from lab.registry import CALLED
try:
    import lab.compiled as compiled
except ImportError:
    compiled = None
import pkgutil
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / 'elsewhere'))
import added
BUILT = (HERE / ('bu' + 'ilt.json')).read_text(), (HERE.parent / 'elsewhere' / 'outside.json').read_text()
LISTED = [path.read_text() for path in (HERE / 'parts').iterdir() if path.is_file()], (HERE / 'corpora' / 'corpus.txt').read_text()
READER = Thread(target=(HERE / 'threaded.txt').read_text)
READER.start(), READER.join()
POOLED = [*ThreadPoolExecutor().map(Path.read_text, [HERE / 'pooled.txt', HERE / 'parts' / 'same' / 'pooled.txt'])]
GIVEN = json.loads(Path(__file__).with_name('given.json').read_text())
ROWS = json.loads(Path(__file__).with_name('rows.json').read_text())
def tried():
    from late import chosen
    return f() + s.g() + spaced() + chosen() + lab.act.act() + star() + CALLED['mark'] + installed.code() + compiled.run()
def chosen_by_name(name):
    import lab.later
    return getattr(table, 'ACTS')[name]
def of_subclasses():
    return [one() for one in lab.act.Base.__subclasses__()]
def by_alias():
    return im('outsider').f()
def of_the_environment():
    return os.environ.get('LAB_WIDTH', '3')
def of_added():
    return added.f()
def by_library():
    return pkgutil.resolve_name('na' + 'med:f')()
def by_text(find):
    return find('lab.kinds:Kind')
ASKED = [os.getenv(f'LAB_{n}') for n in 'AB'], os.environ.copy(), dict(os.environ), {**os.environ}
POOL = ThreadPoolExecutor(1)
def in_a_thread():
    return POOL.submit((HERE / 'unread.txt').read_text).result()
def of_a_corpus():
    return (HERE / 'corpora' / 'corpus.txt').read_text()
def to_read_and_write():
    return open(HERE / 'unread.txt', 'r+').read()
def of_a_variable():
    return os.environ['LAB_' + 'C']
def of_variables_that_count():
    return os.environ.get('LAB_A'), os.getenv('LAB_WIDTH'), os.environ['PATH'], dict(os.environ)
def of_an_unset_variable():
    return os.getenv('LAB_' + 'D')
""",
    "fast.py": "def f():\n    return 'fast'\n",
    "slow.py": "def f():\n    return 'slow'\ndef g():\n    return 'attribute'\n",
    "spaced/inner.py": "def spaced():\n    return 'spaced'\n",
    "given.json": '{"x": "given"}',
    "rows.json": '{"x": "rows"}',
    "built.json": "'built'",
    "parts/listed.txt": "'listed'",
    "parts/same/pooled.txt": "'same'",
    "corpora/corpus.txt": "'corpus'",
    "threaded.txt": "'threaded'",
    "pooled.txt": "'pooled'",
    "unread.txt": "'unread'",
    # in a folder that the study adds
    "elsewhere/added.py": "from pathlib import Path\nPath(__file__).with_name('beside.txt').read_text()\n"
    "def f():\n    return 'added'\n",
    "elsewhere/beside.txt": "'beside'",
    "elsewhere/named.py": "def f():\n    return 'named'\n",
    "elsewhere/outside.json": "'outside'",
    "outsider.py": "def f():\n    return 'outside'\n",
    "late.py": "if True:\n    def chosen():\n        return 'late'\n",
    # on PYTHONPATH, outside of the study's folder
    "lab/__init__.py": "",
    "lab/act.py": "from lab.deep import inner\nclass Base: pass\ndef act():\n    return inner() + 'act'\n",
    "lab/deep.py": "def inner():\n    return 'deep'\n",
    "lab/table.py": "def tanh(): return 'tanh'\nACTS = {'tanh': tanh}\n",
    "lab/starred.py": "def star():\n    return 'star'\n",
    "lab/registry.py": "CALLED = {}\ndef register(f):\n    CALLED[f.__name__] = f()\n    return f\n"
    "@register\ndef mark():\n    return 'mark'\n",
    "lab/patches.py": "from lab.registry import register\n@register\ndef patch():\n    return 'patch'\n",
    "lab/later.py": "from lab.registry import register\n@register\ndef later():\n    return 'later'\n",
    "lab/kinds.py": "from lab.act import Base\nclass Kind(Base):\n    name = 'kind'\n",
    "lab/unused.py": "def unused():\n    return 'unused'\n",
    f"lab/compiled{EXTENSION_SUFFIXES[0]}": "machine code 'first'",
    # installed from an index: its version stays
    "installed.py": "def code():\n    return 'code'\n",
    "installed-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: installed\nVersion: 1.0\n",
    "installed-1.0.dist-info/RECORD": "installed.py,sha256=cjiROugqH6ZBklM2ef8eILY-7rSuCpH4Dngf1fzXwW4,30\n"
    "installed-1.0.dist-info/RECORD,,\n",
}
# each change, and which of the functions in study.py get other keys by it
OF_TRIED = [("fast.py", "'fast'"), ("spaced/inner.py", "'spaced'"),
            ("late.py", "'late'"), ("study.py", "'pair'"), ("lab/act.py", "'act'"), ("lab/deep.py", "'deep'"),
            ("lab/starred.py", "'star'"), ("installed.py", "'code'"), ("installed-1.0.dist-info/RECORD", "=cjiROug")]  # fmt: skip
OF_ALL = "tried chosen_by_name of_subclasses of_the_environment by_alias of_added by_library by_text".split()
DYNAMIC = ["by_alias", "by_library", "of_subclasses"]
READ = ["given.json", "rows.json", "built.json", "parts/listed.txt", "parts/same/pooled.txt", "corpora/corpus.txt", "threaded.txt",
        "pooled.txt", "elsewhere/beside.txt", "elsewhere/outside.json"]  # fmt: skip
CHANGES = {
    # names cannot follow what a class's subclasses are: all modules count
    **{change: [*DYNAMIC, "tried"] for change in OF_TRIED},
    ("slow.py", "'slow'"): OF_ALL,  # study.py sets a name of this module when it is imported
    ("slow.py", "'attribute'"): OF_ALL,
    ("study.py", "THRESHOLD = 3"): OF_ALL,
    ("lab/registry.py", "'mark'"): OF_ALL,
    ("lab/patches.py", "'patch'"): OF_ALL,  # imported for what it registers
    ("lab/later.py", "'later'"): ["chosen_by_name", *DYNAMIC],  # the same, in a function
    (f"lab/compiled{EXTENSION_SUFFIXES[0]}", "'first'"): OF_ALL,
    ("lab/table.py", "'tanh'"): ["chosen_by_name", *DYNAMIC],
    ("lab/kinds.py", "'kind'"): ["by_text", *DYNAMIC],
    ("elsewhere/added.py", "'added'"): ["of_added", *DYNAMIC],
    ("elsewhere/named.py", "'named'"): DYNAMIC,
    ("unread.txt", "'unread'"): [],
    **{(file, STUDY[file].split(": ")[-1].rstrip("}")): OF_ALL for file in READ},  # when the study is imported
    ("lab/unused.py", "'unused'"): DYNAMIC,
    ("LAB_WIDTH", ""): ["of_the_environment", *DYNAMIC],
    ("LAB_HEIGHT", ""): [],
    ("LAB_A", ""): OF_ALL,  # a computed name, read when the study is imported
    ("outsider.py", "'outside'"): DYNAMIC,  # a package that is imported by its name in a text
}
STUDY_KEYS = """
import json, os, sys
from pathlib import Path
from phrasemodels import project
from phrasemodels.data.store.disk_cache import cached_on_disk
from phrasemodels.data.store.fingerprint import closure, forget
assert project.users_place("added") is None
project.part("metrics", "tried")
import study
def keys():
    forget()
    return {name: str(closure(getattr(study, name), (study.Pair(1),) if name == "tried" else ()))
            for name in json.loads(sys.argv[3])}
before, found = keys(), []
for file, old in json.loads(sys.argv[1]):
    path = next((root / file for root in (Path(), Path(sys.argv[2]), Path("..")) if (root / file).exists()), None)
    if path is None:
        os.environ[file] = "9"
    else:
        text = path.read_text()
        path.write_text(text.replace(old, old[:-1] + "9" + old[-1]))
    after = keys()
    found.append([name for name in before if after[name] != before[name]])
    if path is None:
        del os.environ[file]
    else:
        path.write_text(text)
made, outside = [], Path("../elsewhere/outside.json")
for text in ("", "", "changed"):
    if text:
        outside.write_text(text)
    cached_on_disk("test", sys.argv[2], lambda: made.append(0))
refused = []
os.environ.update(LAB_A="1", LAB_C="1", LAB_WIDTH="1")
study.of_a_variable()  # outside of a step
with project.declared_files_only():
    for read in (study.in_a_thread, study.of_a_corpus, study.to_read_and_write, study.of_a_variable, study.of_an_unset_variable,
                 study.of_variables_that_count):
        try:
            read()
        except ValueError as error:
            refused.append(str(error))
print(json.dumps([found, refused, len(made)]))
"""


def test_every_change_of_what_a_study_reaches_changes_its_key(tmp_path: Path) -> None:
    for name, text in STUDY.items():
        outside = name.startswith(("lab", "installed", "outsider"))
        file = tmp_path / ("site" if outside else "" if name.startswith("elsewhere") else "study") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    places = (tmp_path / "study", tmp_path / "site", PROJECT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places)), "LAB_HEIGHT": "1"}
    command = [sys.executable, "-c", STUDY_KEYS, json.dumps([*CHANGES]), str(tmp_path / "site"), json.dumps(OF_ALL)]
    done = subprocess.run(command, cwd=tmp_path / "study", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    keys, refused, made = json.loads(done.stdout)
    assert made == 2, "an answer is made again when a file outside of the study changes"
    found = dict(zip(CHANGES, map(sorted, keys), strict=True))
    assert found == {change: sorted(names) for change, names in CHANGES.items()}
    for message, name in zip(refused, ("unread.txt", "corpus.txt", "unread.txt", "LAB_C", "LAB_D"), strict=True):
        assert name in message and "no key knows its" in message


USERS_CODE = """
import os
import re

REG = {}
KEY = "GAIN"


class Setup:
    REG["gain"] = 2


_ = REG.update(other=2)
old: int = REG.setdefault("new", 2)


def register(name, value):
    REG[name] = value
    return value


def quiet(value):
    found = [value]
    found.append(value)
    return found


class Meta(type):
    def __init__(cls, *given):
        REG["meta"] = cls


class Base(metaclass=Meta):
    pass


registered, one = register("named", 2), 1
unused = quiet(21)


class Made:
    part = register("part", 2)


class Below(Base):
    of = 2


def annotated(x: register("annotated", 2)):
    return x


def setting(name):
    return os.environ[name]


def layer():
    return REG["gain"], setting(KEY)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('REG["gain"] = 2', 'REG["gain"] = 3'),
        ("other=2", "other=3"),
        *((f'"{name}", 2', f'"{name}", 3') for name in ("new", "named", "part", "annotated")),
        ("of = 2", "of = 3"),
        ("quiet(21)", "quiet(22)"),
    ],
    ids=lambda text: text if "2" in text else "",
)
def test_effects_of_definitions_count_in_users_code(tmp_path, monkeypatch, old, new):
    """What fills a table at import counts though nothing names it. A function that changes nothing else doesn't."""
    monkeypatch.syspath_prepend(tmp_path)
    keys = []
    for number, text in enumerate((USERS_CODE, USERS_CODE.replace(old, new))):
        module = re.sub(r"\W", "", f"effects_{old}_{number}")  # one of its own: modules stay imported
        (tmp_path / f"{module}.py").write_text(text)
        importlib.invalidate_caches()
        found = closure(importlib.import_module(module).layer)[0]
        keys.append({name.partition(":")[2]: digest for name, digest in found.items() if name.startswith(module)})
    assert (keys[0] != keys[1]) is ("quiet" not in old)


@pytest.mark.timeout(20)
def test_calls_at_import_are_followed_through_stars_and_many_ways(tmp_path, monkeypatch):
    """There are 2 ** 40 ways through the functions. Each is looked at once."""
    monkeypatch.syspath_prepend(tmp_path)
    steps = "".join(f"def way{k}(x):\n    return way{k + 1}(x) or way{k + 1}(x)\n" for k in range(40))
    ends = "REG = {}\ndef way40(x):\n    return x\ndef put(x):\n    REG['a'] = x\n    return x\n"
    (tmp_path / "ways_of_users.py").write_text(steps + ends)
    keys = {}
    for said in ("way0(1)", "way0(2)", "put(1)", "put(2)"):
        module = re.sub(r"\W", "", f"starred_{said}")
        (tmp_path / f"{module}.py").write_text(f"from ways_of_users import *\nnamed = {said}\ndef layer():\n    return REG\n")
        importlib.invalidate_caches()
        found = closure(importlib.import_module(module).layer)[0]
        keys[said] = {name.partition(":")[2]: digest for name, digest in found.items()}
    assert keys["way0(1)"] == keys["way0(2)"] and keys["put(1)"] != keys["put(2)"]


EARLY = """
import own
from phrasemodels.data.store.fingerprint import closure
print(*closure(own.mine, own.found)[0])
"""


def test_what_a_module_read_before_it_was_watched_counts(tmp_path: Path) -> None:
    """As in a notebook, which imports the study first. A module that can't be imported alone is named."""
    (tmp_path / "phrasemodels.toml").write_text('[metrics]\nmine = "own:mine"\n')
    (tmp_path / "gain.txt").write_text("2")
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/hidden.py").write_text("GAIN = 2\n")
    text = "import sys\nGAIN = open('gain' + '.txt').read()\ndef mine():\n    return GAIN\n"
    text += f"sys.path.append({str(tmp_path / 'lab')!r})\ndef found(name):\n    return __import__(name)\n"
    found = []
    for more in ("", "assert sys.argv == ['-c'], 'not alone'\n"):
        (tmp_path / "own.py").write_text(text + more)
        environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{PROJECT}"}
        found.append(
            subprocess.run([sys.executable, "-c", EARLY], cwd=tmp_path, env=environment, capture_output=True, text=True)
        )
    assert {"<file>:gain.txt", "hidden:GAIN"} <= {*found[0].stdout.split()}, found[0].stderr
    assert "own: imported before its files were watched" in found[1].stderr and "not alone" in found[1].stderr


def test_variables_count_whose_names_stand_elsewhere_in_the_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "variable_of_ours.py").write_text(USERS_CODE)
    importlib.invalidate_caches()
    module, keys = importlib.import_module("variable_of_ours"), []
    for gain in ("2", "3"):
        monkeypatch.setenv("GAIN", gain)
        forget()
        keys.append(closure(module.layer))
    assert keys[0] != keys[1]


def test_a_configuration_of_a_class_made_by_a_function_is_refused():
    @dataclass(frozen=True)
    class Local:
        d: int = 1

    with pytest.raises(ValueError, match="define the class in a module"):
        to_json(Local())


def test_pythons_own_tests_are_no_code_of_users() -> None:
    assert project.users_place("test") is None, "its name isn't among sys.stdlib_module_names"
