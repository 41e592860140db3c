"""Reader of JSON fields that also reads amounts of resources."""

from __future__ import annotations

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, parse_resource_list, parse_stored_list


class ResourceReader(FieldReader):
    """Reader of an object that has resource lists somewhere in it."""

    __slots__ = ()

    def resource_list(self, name: str) -> ResourceList:
        """Return an object of quantities; absent is empty.

        Raises:
            InvalidQuantityError: A value is not a quantity; the path names its key.
        """
        value = self._raw.get(name)
        if value is None:
            return {}
        try:
            return parse_resource_list(value, field="")
        except InvalidFieldError:
            return parse_resource_list(value, field=self.path(name))

    def quantity(self, name: str) -> Quantity | None:
        """Return one amount; None if it is absent."""
        value = self._raw.get(name)
        return None if value is None else Quantity.from_json(value, field=self.path(name))


class StoredResourceReader(ResourceReader):
    """Reader of an object that the API server has stored.

    Amounts that can be stored, and that are too large to be read here, are `UNCOUNTABLE`.
    """

    __slots__ = ()

    def resource_list(self, name: str) -> ResourceList:
        """Return an object of quantities; absent is empty."""
        value = self._raw.get(name)
        return {} if value is None else parse_stored_list(value, field=self.path(name))
