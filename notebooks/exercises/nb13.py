"""Checks of notebook 13."""

from collections.abc import Mapping
from typing import Any

import checks

BLOCK = 4096


@checks.number("13.1", otherwise="bytes of all the state, divided by the bytes of a card that are for state, rounded up")
def cards() -> tuple[int, Mapping[int, str]]:
    return 28, {
        14: "that fills the cards with state: half of each is to be left",
        27: "that is rounded down: a part of a card is a card",
        32: "fewer are enough: any number of cards will do, not a power of two alone",
    }


@checks.program("13.2", "owner")
def owner(answer: Any) -> str | None:
    for elements, ranks in ((20_000, 4), (4096 * 8, 4), (50_304 * 768, 5), (768, 3), (4097, 2)):
        own = min(elements, -(-(-(-elements // ranks)) // BLOCK) * BLOCK)
        for element in {0, own - 1, min(own, elements - 1), elements // 2, elements - 1}:
            found = answer(element, elements, ranks)
            if found != element // own:
                return (
                    f"element {element:,} of {elements:,} among {ranks} is rank {element // own}'s, not {found}'s: "
                    "parts are whole blocks of 4,096, but for a tensor that is smaller"
                )
    return None


checks.choice(
    "13.3",
    "f6dfbfaaed47",
    a="look at what is sent with two passes",
    c="that is shard 3",
    d="the sums are the same but for their order",
)
