"""Text of loop nests: of the loop, tile and kernel levels; kernel/text.py adds forms of its own."""
