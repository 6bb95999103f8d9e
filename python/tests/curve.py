"""A small custom model: two linear layers that are fitted to a curve."""

import tightrope as tr

CPU = dict(device="cpu", threads=2)
INPUTS = {"x": ("f32", (3,)), "y": ("f32", (1,))}


class Curve(tr.Model):
    def __init__(self):
        self.up, self.down = tr.nn.Linear(3, 5), tr.nn.Linear(5, 1)

    def predict(self, x):
        return self.down(tr.nn.relu(self.up(x)))

    def loss(self, x, y):
        return tr.nn.mean_squared_error(self.predict(x), y)
