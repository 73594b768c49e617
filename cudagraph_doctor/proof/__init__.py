"""How a suspicion is proven: arms, state, order, padding, repair."""
