"""Staging copies whatever `next_inputs` gives, by name, and sends padding rows to the padding slot."""

from first_target import Decode


class Thorough(Decode):
    def update(self, static, fresh):
        static["slots"].fill_(64)
        for name, value in fresh.items():
            static[name][: len(value)].copy_(value)


target = Thorough
