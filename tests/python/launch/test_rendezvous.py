"""From a place in the world to a rendezvous: what rank 0 publishes, and how other ranks use it."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_launcher import S, together

from pycollective.bootstrap import addresses, bootstrap_info
from pycollective.bootstrap.card import LONGEST, Card, parse
from pycollective.bootstrap.detect import Placement
from pycollective.bootstrap.interfaces import RUNNING, UP
from pycollective.bootstrap.key import KEY_BYTES, key_id
from pycollective.bootstrap.rendezvous import Rendezvous, find_rendezvous
from pycollective.errors import CollectiveTimeout, InvalidArgument, PeerFailure

pytestmark = pytest.mark.timeout(60)


class MemoryKvs:
    """A fake KVS: a dictionary that ranks of one process share."""

    def __init__(self, *, lasting: bool = False) -> None:
        self.name = f"a fake KVS {secrets.token_hex(4)}"
        self.lasting = lasting
        self.texts: dict[str, str] = {}
        self.changed = threading.Condition()

    def publish(self, key: str, text: str, *, timeout_s: float) -> None:
        with self.changed:
            self.texts[key] = text
            self.changed.notify_all()

    def read(self, key: str, *, timeout_s: float) -> str:
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.texts, timeout_s):
                raise CollectiveTimeout("nothing")
            return self.texts[key]

    def withdraw(self, key: str) -> None:
        self.texts.pop(key, None)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "named-key"
    path.write_bytes(secrets.token_bytes(KEY_BYTES))
    path.chmod(0o600)
    monkeypatch.setenv("PYCOLLECTIVE_KEY_FILE", str(path))
    return path


@pytest.fixture
def kvs() -> MemoryKvs:
    return MemoryKvs()


@pytest.fixture
def found_by() -> Iterator[Callable[..., Rendezvous]]:
    """Yields find_rendezvous(), and closes its servers at the end."""
    found: list[Rendezvous] = []

    def find_and_keep(place: Placement, number: int = 0, timeout_s: float = S) -> Rendezvous:
        found.append(find_rendezvous(place, number=number, timeout_s=timeout_s))
        return found[-1]

    yield find_and_keep
    for each in found:
        each.close()


def place(rank: int, kvs: MemoryKvs, size: int = 2) -> Placement:
    return Placement(rank, size, rank, size, "a fake", one_host=True, kvs=lambda: kvs)


def test_rank_0_publishes_a_key_of_its_own_and_where_it_is(
    kvs: MemoryKvs, found_by: Callable[..., Rendezvous]
) -> None:
    root, other = found_by(place(0, kvs)), found_by(place(1, kvs))
    assert root.server is not None
    assert root.store_addresses == other.store_addresses == root.server.addresses
    assert (root.key, root.job) == (other.key, other.job)
    assert other.server is other.host_store is root.host_store is None
    assert kvs.name in root.key_source
    assert kvs.name in other.key_source
    for each in (root, other):
        assert repr(each.key)[2:-1] not in repr(each)
        assert each.key.hex() not in repr(each) + each.key_source
    again = found_by(place(0, kvs), number=1)
    assert again.key != root.key
    assert again.job != root.job


def test_when_all_have_joined_the_card_is_gone_and_the_store_stays_until_it_is_closed(
    kvs: MemoryKvs, found_by: Callable[..., Rendezvous]
) -> None:
    root = found_by(place(0, kvs))
    card = parse(kvs.texts["pycollective.0"], "")
    assert bootstrap_info.is_listening(card)
    root.all_joined()
    assert not kvs.texts
    assert bootstrap_info.is_listening(card)
    root.close()
    assert not bootstrap_info.is_listening(card)


def test_a_failed_init_offers_the_same_again_where_the_kvs_keeps_its_first_word(
    kvs: MemoryKvs, found_by: Callable[..., Rendezvous]
) -> None:
    first = found_by(place(0, kvs))
    first.close()  # the other ranks were late
    second = found_by(place(0, kvs))
    assert second.server is not None
    assert (first.key, first.job, first.store_addresses) == (second.key, second.job, second.server.addresses)


def test_what_an_earlier_start_has_left_is_not_followed(found_by: Callable[..., Rendezvous]) -> None:
    kvs = MemoryKvs(lasting=True)
    found_by(place(0, kvs)).close()  # it died before all had joined
    stale = kvs.texts["pycollective.0"]

    def root_comes_later() -> Rendezvous:
        while not asked.wait(S):
            raise AssertionError
        return found_by(place(0, kvs))

    asked = threading.Event()
    read = kvs.read

    def reading(key: str, *, timeout_s: float) -> str:
        text = read(key, timeout_s=timeout_s)
        asked.set()
        return text

    kvs.read = reading  # type: ignore[method-assign]
    root, other = together(root_comes_later, lambda: found_by(place(1, kvs)))
    assert isinstance(root, Rendezvous)
    assert isinstance(other, Rendezvous)
    assert other.store_addresses == root.store_addresses
    assert other.key == root.key
    assert kvs.texts["pycollective.0"] != stale


def test_a_card_without_a_listener_ends_in_an_error_that_says_so(
    found_by: Callable[..., Rendezvous],
) -> None:
    kvs = MemoryKvs(lasting=True)
    found_by(place(0, kvs)).close()
    with pytest.raises(
        CollectiveTimeout, match=r"nothing answered there in 0.2 s.*an earlier run has left that"
    ):
        found_by(place(1, kvs), timeout_s=0.2)


def test_a_probe_that_connects_to_itself_finds_no_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may assign the probe the port that it probes, and then connects it to itself."""
    connect = socket.create_connection
    monkeypatch.setattr(
        socket, "create_connection", lambda at, timeout: connect(at, timeout, source_address=at)
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert not bootstrap_info.answers("127.0.0.1", port)


@pytest.mark.usefixtures("home")
def test_a_named_key_file_stays_out_of_the_kvs(
    kvs: MemoryKvs, found_by: Callable[..., Rendezvous], key_file: Path
) -> None:
    root, other = found_by(place(0, kvs)), found_by(place(1, kvs))
    assert root.key == other.key == key_file.read_bytes()
    assert key_file.name in root.key_source
    assert root.key.hex() not in kvs.texts["pycollective.0"]
    assert key_id(root.key) in kvs.texts["pycollective.0"]
    key_file.write_bytes(secrets.token_bytes(KEY_BYTES))
    with pytest.raises(
        InvalidArgument, match=rf"has key {key_id(root.key)}.*has key .* from PYCOLLECTIVE_KEY_FILE="
    ):
        found_by(place(1, kvs))


def test_strict_takes_the_users_key_and_none_from_the_kvs(
    kvs: MemoryKvs, found_by: Callable[..., Rendezvous], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_by(place(0, kvs))
    monkeypatch.setenv("PYCOLLECTIVE_SECURITY", "strict")
    with pytest.raises(
        InvalidArgument, match=r"SECURITY=strict is set on .*, but rank 0 on .* published a key"
    ):
        found_by(place(1, kvs))
    root, other = found_by(place(0, kvs), number=1), found_by(place(1, kvs), number=1)
    assert root.key == other.key == (home / "pycollective/key").read_bytes()
    assert root.key.hex() not in kvs.texts["pycollective.1"]


def test_a_key_file_on_one_rank_only_is_an_error(
    kvs: MemoryKvs, found_by: Callable[..., Rendezvous], monkeypatch: pytest.MonkeyPatch, key_file: Path
) -> None:
    monkeypatch.delenv("PYCOLLECTIVE_KEY_FILE")
    found_by(place(0, kvs))
    monkeypatch.setenv("PYCOLLECTIVE_KEY_FILE", str(key_file))
    with pytest.raises(
        InvalidArgument, match="PYCOLLECTIVE_KEY_FILE is set on .*set it on every rank, or on none"
    ):
        found_by(place(1, kvs))


def test_ranks_of_worlds_of_different_size_do_not_connect(
    kvs: MemoryKvs, found_by: Callable[..., Rendezvous]
) -> None:
    found_by(place(0, kvs))
    with pytest.raises(InvalidArgument, match="opened a world of 2 ranks, and this is rank 1 of 3"):
        found_by(place(1, kvs, size=3))


def test_without_a_kvs_the_users_key_is_shared(found_by: Callable[..., Rendezvous], home: Path) -> None:
    def at(rank: int) -> Placement:
        stores = ("127.0.0.1:4711", "127.0.0.1:4712")
        return Placement(rank, 2, rank, 2, "a fake", store_addresses=stores, hosts_store=rank == 0, job="a/2")

    root, other = found_by(at(0)), found_by(at(1))
    assert (
        root.host_store
        == root.store_addresses
        == other.store_addresses
        == ["127.0.0.1:4711", "127.0.0.1:4712"]
    )
    assert other.host_store is None
    assert root.key == other.key == (home / "pycollective/key").read_bytes()
    assert root.job == other.job
    assert root.listen == ["127.0.0.1"], "where its store is"
    assert other.listen == ["127.0.0.1"], "it is on the same host"


@pytest.mark.usefixtures("home")
def test_on_rank_0s_host_every_rank_listens_wherever_the_store_does(
    found_by: Callable[..., Rendezvous], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ranks may use another address than the one by which it reached the store."""
    own = [("nat0", "10.0.2.15", UP | RUNNING), ("eth0", "192.0.2.1", UP | RUNNING)]
    monkeypatch.setattr(addresses, "interfaces", lambda: own)

    def listens(*stores: str) -> list[str]:
        return found_by(Placement(1, 2, 1, 0, "a fake", store_addresses=stores, job="a/2")).listen

    assert listens("10.0.2.15:80", "192.0.2.1:80", "192.0.2.1:81") == ["10.0.2.15", "192.0.2.1"]
    assert listens("10.0.2.15:80", "192.0.2.7:80") == []  # another host with one of the same addresses
    assert listens("192.0.2.7:80") == []


@pytest.mark.usefixtures("home")
def test_advice_is_for_ranks_that_may_be_on_several_hosts(found_by: Callable[..., Rendezvous]) -> None:
    for one_host, words in ((False, "127.0.0.1 is loopback"), (True, "")):
        store = ("127.0.0.1:80",)
        place = Placement(1, 2, 1, 0, "a fake", store_addresses=store, job="a/2", one_host=one_host)
        assert found_by(place).advice.startswith(words)
        assert bool(found_by(place).advice) == bool(words)


def test_a_key_that_the_launcher_handed_over_comes_first(
    found_by: Callable[..., Rendezvous], key_file: Path
) -> None:
    key = secrets.token_bytes(KEY_BYTES)
    found = found_by(Placement(1, 2, 1, 2, "a fake", store_addresses=("127.0.0.1:4711",), key=key))
    assert found.key == key != key_file.read_bytes()
    assert found.key_source == "handed over by a fake"


def test_the_interface_chosen_by_the_user_is_where_ranks_listen(
    kvs: MemoryKvs, found_by: Callable[..., Rendezvous], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYCOLLECTIVE_INTERFACE", "127.0.0.1")
    assert found_by(place(0, kvs)).listen == ["127.0.0.1"]
    assert addresses.split(found_by(place(1, kvs)).store_addresses[0])[0] == "127.0.0.1"


def test_a_world_of_one_needs_no_peer(found_by: Callable[..., Rendezvous], home: Path) -> None:
    assert found_by(Placement(0, 1, 0, 1, "single")).store_addresses == []
    assert list(home.iterdir()) == []


def test_unknown_words_of_security_are_refused_everywhere(
    found_by: Callable[..., Rendezvous], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYCOLLECTIVE_SECURITY", "none")
    with pytest.raises(InvalidArgument, match="none is not one of"):
        found_by(Placement(1, 2, 1, 2, "a fake", store_addresses=("127.0.0.1:4711",), key=b"k" * 32))


def card(count: int) -> Card:
    places = tuple(f"[2001:db8:{n:x}::{n:x}]:65535" for n in range(count))
    return Card(4, b"j" * 16, "a host;=" + "x" * 80, "01234567", b"k" * 32, places)


def test_a_card_is_what_every_kvs_takes_and_comes_back() -> None:
    for count in (1, 5, 100):
        text = card(count).text()
        assert len(text) <= LONGEST
        assert not set(text) & set(" ;=\n")
        assert text.isascii()
        found = parse(text, "a KVS")
        assert (found.size, found.job, found.key, found.key_id) == (4, b"j" * 16, b"k" * 32, "01234567")
        assert found.addresses == card(count).addresses[: len(found.addresses)]
        assert found.addresses
    assert "kkkk" not in repr(card(1))


@pytest.mark.parametrize(
    "text", ["", "hello", "pycollective-9,1,2", "pycollective-1,x,,,,,", "pycollective-1,2,00,h,i,-"]
)
def test_what_is_no_card_is_refused(text: str) -> None:
    with pytest.raises(PeerFailure, match="a KVS holds no card that this version can read"):
        parse(text, "a KVS")
