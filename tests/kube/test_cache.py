"""The cache under an informer."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from webhook.kube.cache import BY_NAMESPACE, Entry, IndexedCache

KEYS = st.sampled_from(["a/x", "a/y", "b/x", "cluster-wide"])
TEXTS = st.text(alphabet="pqr", max_size=3)


class CacheAgainstDict(RuleBasedStateMachine):
    """A cache finds what a plain dict holds, by key and by index, in the order of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: IndexedCache[str] = IndexedCache()
        self.model: dict[str, str | None] = {}

    @rule(key=KEYS, text=TEXTS)
    def put(self, key: str, text: str) -> None:
        old = self.cache.put(key, Entry("uid", 1, text, indexed={"letter": tuple(text)}))
        assert (old is None) is (key not in self.model)
        self.model[key] = text

    @rule(key=KEYS)
    def put_error(self, key: str) -> None:
        self.cache.put(key, Entry("uid", 1, error=ValueError("bad")))
        self.model[key] = None

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        old = self.cache.remove(key)
        assert (old is None) is (key not in self.model)
        self.model.pop(key, None)

    @invariant()
    def same_entries(self) -> None:
        assert len(self.cache) == len(self.model)
        found = {key: entry.value for key, entry in self.cache.entries().items()}
        assert found == self.model

    @invariant()
    def same_indices(self) -> None:
        readable = sorted((key, text) for key, text in self.model.items() if text is not None)
        for letter in "pqr":
            expected = tuple(text for _, text in readable if letter in text)
            assert self.cache.find("letter", letter) == expected
        for namespace in ("a", "b", ""):
            expected = tuple(t for k, t in readable if k.rpartition("/")[0] == namespace)
            assert self.cache.find(BY_NAMESPACE, namespace) == expected


TestCacheAgainstDict = CacheAgainstDict.TestCase


def test_an_index_that_did_not_change_is_not_listed_again() -> None:
    cache: IndexedCache[str] = IndexedCache()
    cache.put("a/x", Entry("uid", 1, "one"))
    before = cache.find(BY_NAMESPACE, "a")
    cache.put("b/x", Entry("uid", 2, "two"))
    assert cache.find(BY_NAMESPACE, "a") is before


def test_what_was_removed_leaves_nothing_behind() -> None:
    cache: IndexedCache[str] = IndexedCache()
    for number in range(3):
        cache.put("a/x", Entry("uid", number, f"text-{number}", indexed={"i": (str(number),)}))
    cache.remove("a/x")
    assert cache.index_values(BY_NAMESPACE) == cache.index_values("i") == set()
