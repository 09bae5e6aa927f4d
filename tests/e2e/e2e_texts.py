"""Text to make prompts from."""

TEXT = (
    "The lighthouse keeper climbed the stairs every evening, counting each step aloud. There were two hundred and "
    "twelve of them, worn in the middle like old spoons. In winter the wind sang through the iron railing, and in "
    "summer swallows nested under the gallery. He wrote the weather into a book: wind north-west, force 6, visibility "
    "good. def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n\nOn the third of May 1912 a ship came in "
    "without lights. Nobody on board could say how long they had been at sea; their clocks had stopped, all within "
    "the same hour. The captain asked for water, bread, and the date. "
) * 5
