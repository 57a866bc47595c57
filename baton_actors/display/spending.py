"""What model calls have used, as a value and in words."""

from collections.abc import Mapping
from typing import Any, NamedTuple

#: Kinds of tokens that count as used; those read from a cache are among `tokens_in`. Lost ones may have been used.
_TOKENS = ("tokens_in", "tokens_out", "tokens_lost")
#: Less than this would be written as nothing.
_LEAST_COST = 0.0001
#: No amount is as large as this; what is came from a function that speaks of something else.
_MOST = 1e18


class Spent(NamedTuple):
    """What a baton or a tree has used so far.

    Attributes:
        rounds: model calls. tokens: in and out. cost: in the currency of the user's prices; None when no price is known.
    """

    rounds: int = 0
    tokens: float = 0
    cost: float | None = None

    @classmethod
    def of(cls, usage: Mapping[str, Any], rounds: int) -> "Spent":
        """What `Baton.usage` or the `data` of a round says; anything that is no amount counts as nothing."""
        cost = usage.get("cost")
        return cls(rounds, sum(_amount(usage.get(key)) for key in _TOKENS), None if cost is None else _amount(cost))

    def plus(self, more: "Spent") -> "Spent":
        """Both together."""
        cost = more.cost if self.cost is None else self.cost + (more.cost or 0)
        return Spent(self.rounds + more.rounds, self.tokens + more.tokens, cost)

    def words(self) -> tuple[str, str, str]:
        """`7 rounds`, `12.3k tokens`, `cost 0.0123`; empty where there is nothing to say."""
        return (
            rounds_in_words(self.rounds) if self.rounds else "",
            tokens_in_words(self.tokens) if self.tokens else "",
            "" if self.cost is None else cost_in_words(self.cost),
        )


NOTHING_SPENT = Spent()


def rounds_in_words(rounds: int) -> str:
    """`1 round`, `7 rounds`."""
    return f"{rounds:,} round{'' if rounds == 1 else 's'}"


def tokens_in_words(tokens: float) -> str:
    """`1 token`, `412 tokens`, `12.3k tokens`, `456k tokens`, `1.2M tokens`."""
    if round(tokens) < 1_000:
        return f"{round(tokens)} token{'' if round(tokens) == 1 else 's'}"
    thousands = tokens / 1_000
    if thousands < 99.95:
        return f"{thousands:.1f}k tokens"
    if thousands < 999.5:
        return f"{thousands:.0f}k tokens"
    return f"{thousands / 1_000:,.1f}M tokens"


def cost_in_words(cost: float) -> str:
    """`cost 0.0123`, `cost 12.50`; without a currency, which only the user's price table knows."""
    if 0 < cost < _LEAST_COST:
        return f"cost under {_LEAST_COST}"
    return "cost 0" if cost == 0 else f"cost {cost:,.2f}" if cost >= 1 else f"cost {cost:.4f}"


def usage_in_words(usage: Mapping[str, float]) -> str:
    """The whole of `Baton.usage`: `1,234 tokens in (1,000 cached), 56 out, cost 0.0123`."""
    cached = _amount(usage.get("tokens_cached"))
    parts = [f"{_amount(usage.get('tokens_in')):,.0f} tokens in{f' ({cached:,.0f} cached)' if cached else ''}"]
    parts.append(f"{_amount(usage.get('tokens_out')):,.0f} out")
    if lost := _amount(usage.get("tokens_lost")):
        parts.append(f"{lost:,.0f} at most in lost runs")
    if (cost := usage.get("cost")) is not None:
        parts.append(cost_in_words(_amount(cost)))
    return ", ".join(parts)


def _amount(value: Any) -> float:
    """The number, if it is one that can be added up; events of functions may hold anything."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST else 0
