"""The same steps in eager PyTorch, written the way a PyTorch user would: autograd, one point after the other."""

from typing import NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch.autograd import grad
from torch.nn.functional import cross_entropy


class Cleaning:
    """Hyper-cleaning with a linear softmax model."""

    def __init__(self, problem, C=0.001):
        outer, inner = problem.outer_data, problem.inner_data
        self.trusted, self.trusted_labels = _tensor(outer["features"]), _tensor(outer["labels"]).long()
        self.features, self.labels = _tensor(inner["features"]), _tensor(inner["labels"]).long()
        self.x0, self.y0, self.C = _tensor(problem.x0), _tensor(problem.y0), C

    def draw_F(self, size):
        index = torch.randint(len(self.trusted), (size,))
        return self.trusted[index], self.trusted_labels[index]

    def draw_G(self, size):
        index = torch.randint(len(self.features), (size,))
        return self.features[index], self.labels[index], index

    def F(self, x, y, batch):
        features, labels = batch
        return cross_entropy(features @ y.T, labels)

    def G(self, x, y, batch):
        features, labels, index = batch
        loss = cross_entropy(features @ y.T, labels, reduction="none")
        return (torch.sigmoid(x[index]) * loss).mean() + self.C * (y**2).sum()


class Documents:
    """Sparse logistic regression with a penalty per feature; batches are cut with scipy, which torch cannot do."""

    def __init__(self, training, labels, validation, validation_labels, classes):
        self.training, self.labels = training.tocsr(), torch.as_tensor(labels).long()
        self.validation, self.validation_labels = validation.tocsr(), torch.as_tensor(validation_labels).long()
        self.x0 = torch.zeros(training.shape[1])
        self.y0 = torch.zeros(training.shape[1], classes)

    def draw_F(self, size):
        index = np.random.randint(self.validation.shape[0], size=size)
        return _sparse(self.validation[index]), self.validation_labels[index]

    def draw_G(self, size):
        index = np.random.randint(self.training.shape[0], size=size)
        return _sparse(self.training[index]), self.labels[index]

    def F(self, x, y, batch):
        features, labels = batch
        return cross_entropy(features @ y, labels)

    def G(self, x, y, batch):
        features, labels = batch
        return cross_entropy(features @ y, labels) + (x.exp() * (y**2).sum(1)).sum() / y.numel()


def _tensor(array):
    return torch.from_numpy(np.array(array))


def _sparse(rows: scipy.sparse.csr_array):
    rows = rows.tocoo()
    return torch.sparse_coo_tensor(np.stack([rows.row, rows.col]), rows.data, rows.shape, check_invariants=False)


def grad_G(p, x, y, batch):
    y = y.detach().requires_grad_()
    return grad(p.G(x, y, batch), y)[0]


def hypergrad(p, x, y, B_F, B_G, B_H, eta):
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    F_x, r = grad(p.F(x, y, B_F), (x, y), allow_unused=True)
    total = r.clone()
    for batch in B_H:
        (g,) = grad(p.G(x, y, batch), y, create_graph=True)
        r = r - eta * grad(g, y, r)[0]
        total += r
    (g,) = grad(p.G(x, y, B_G), y, create_graph=True)
    mixed = grad(g, x, eta * total)[0]
    return -mixed if F_x is None else F_x - mixed


def draw(p, S, Q):
    return p.draw_F(S), p.draw_G(S), [p.draw_G(S) for _ in range(Q)]


def before_the_first_step(p):
    """Return x, y, the same again for the points before, v, u, a momentum weight of 1, k."""
    return p.x0, p.y0, p.x0, p.y0, torch.zeros_like(p.x0), torch.zeros_like(p.y0), 1.0, 0


class MRBO(NamedTuple):
    gamma: float
    lam: float
    Q: int
    eta: float
    S: int

    def start(self, p):
        return before_the_first_step(p)

    def step(self, p, state):
        x, y, x_prev, y_prev, v, u, alpha, k = state
        B_y, B_x = p.draw_G(self.S), draw(p, self.S, self.Q)
        v = hypergrad(p, x, y, *B_x, self.eta) + (1 - alpha) * (v - hypergrad(p, x_prev, y_prev, *B_x, self.eta))
        u = grad_G(p, x, y, B_y) + (1 - alpha) * (u - grad_G(p, x_prev, y_prev, B_y))
        eta_k = 1 / (8 + k) ** (1 / 3)
        return x - self.gamma * eta_k * v, y - self.lam * eta_k * u, x, y, v, u, min(1.0, eta_k**2), k + 1


class VRBO(NamedTuple):
    alpha: float
    beta: float
    m: int
    q: int
    Q: int
    eta: float
    S1: int
    S2: int

    def start(self, p):
        return p.x0, p.y0, torch.zeros_like(p.x0), torch.zeros_like(p.y0), 0

    def step(self, p, state):
        x, y, v, u, k = state
        if k % self.q == 0:
            v = hypergrad(p, x, y, *draw(p, self.S1, self.Q), self.eta)
            u = grad_G(p, x, y, p.draw_G(self.S1))
        x_prev, y_prev, x = x, y, x - self.alpha * v
        for _ in range(self.m + 2):
            B_y, B_x = p.draw_G(self.S2), draw(p, self.S2, self.Q)
            v = v + hypergrad(p, x, y, *B_x, self.eta) - hypergrad(p, x_prev, y_prev, *B_x, self.eta)
            u = u + grad_G(p, x, y, B_y) - grad_G(p, x_prev, y_prev, B_y)
            x_prev, y_prev, y = x, y, y - self.beta * u
        return x, y_prev, v, u, k + 1


class StocBiO(NamedTuple):
    alpha: float
    beta: float
    D: int
    Q: int
    eta: float
    S: int

    def start(self, p):
        return p.x0, p.y0

    def step(self, p, state):
        x, y = state
        for _ in range(self.D):
            y = y - self.alpha * grad_G(p, x, y, p.draw_G(self.S))
        return x - self.beta * hypergrad(p, x, y, *draw(p, self.S, self.Q), self.eta), y


class SUSTAIN(NamedTuple):
    c: float
    Q: int
    eta: float
    S: int

    def start(self, p):
        return before_the_first_step(p)

    def estimate(self, p, x, y, B_F, B_G, B_H):
        """The series of random length: (Q + 1) eta times the last of its products."""
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        r = grad(p.F(x, y, B_F), y)[0]
        for batch in B_H:
            (g,) = grad(p.G(x, y, batch), y, create_graph=True)
            r = r - self.eta * grad(g, y, r)[0]
        (g,) = grad(p.G(x, y, B_G), y, create_graph=True)
        return -grad(g, x, (self.Q + 1) * self.eta * r)[0]

    def step(self, p, state):
        x, y, x_prev, y_prev, v, u, w, k = state
        B_y = p.draw_G(self.S)
        B_x = draw(p, self.S, int(torch.randint(self.Q + 1, ())))
        v = self.estimate(p, x, y, *B_x) + (1 - w) * (v - self.estimate(p, x_prev, y_prev, *B_x))
        u = grad_G(p, x, y, B_y) + (1 - w) * (u - grad_G(p, x_prev, y_prev, B_y))
        alpha = self.c / (8 + k) ** (1 / 3)
        return x - alpha * v, y - alpha * u, x, y, v, u, min(1.0, 100 * alpha**2), k + 1
