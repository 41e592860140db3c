"""The cache under an informer."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from webhook.kube.cache import Entry, NamespacedCache
from webhook.kube.kinds import split_key

KEYS = st.sampled_from(["a/x", "a/y", "b/x", "cluster-wide"])
TEXTS = st.text(alphabet="pqr", max_size=3)


class CacheAgainstDict(RuleBasedStateMachine):
    """A cache finds what a plain dict holds, by key and by namespace, in the order of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: NamespacedCache[str] = NamespacedCache()
        self.model: dict[str, str | None] = {}

    @rule(key=KEYS, text=TEXTS)
    def put(self, key: str, text: str) -> None:
        old = self.cache.put(key, Entry("uid", 1, text))
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
    def same_namespaces(self) -> None:
        readable = sorted((key, text) for key, text in self.model.items() if text is not None)
        for namespace in ("a", "b", ""):
            expected = tuple(t for k, t in readable if k.rpartition("/")[0] == namespace)
            assert self.cache.in_namespace(namespace) == expected
            odd = {k for k, t in self.model.items() if t is None and split_key(k)[0] == namespace}
            assert self.cache.errors_in(namespace).keys() == odd


TestCacheAgainstDict = CacheAgainstDict.TestCase


def test_a_namespace_that_did_not_change_is_not_listed_again() -> None:
    cache: NamespacedCache[str] = NamespacedCache()
    cache.put("a/x", Entry("uid", 1, "one"))
    before = cache.in_namespace("a")
    cache.put("b/x", Entry("uid", 2, "two"))
    assert cache.in_namespace("a") is before


def test_what_was_removed_leaves_nothing_behind() -> None:
    cache: NamespacedCache[str] = NamespacedCache()
    for number in range(3):
        cache.put("a/x", Entry("uid", number, f"text-{number}"))
    cache.remove("a/x")
    assert cache.namespaces() == set()
