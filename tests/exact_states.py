"""What a state holds, and what it must be if every batch is all data."""

from bilax.algorithms import directions
from bilax.hypergrad import dense, neumann
from bilax.sampling import keys


def _G_y(oracle, x, y):
    return oracle.grad_G(x, y, oracle.draw_G(keys.root(0), 1))


def _Phi(a, oracle, x, y):
    estimator = neumann.hypergrad_per_sample if getattr(a, "per_sample", False) else neumann.hypergrad
    return estimator(oracle, x, y, neumann.draw(oracle, keys.root(0), 1, a.Q), a.eta).value


def _matrices(oracle, x, y):
    return dense.matrices(oracle, x, y, oracle.draw_G(keys.root(0), 1))


def behind(a, oracle, s):
    return [(s.v, _Phi(a, oracle, s.x_prev, s.y_prev)), (s.u, _G_y(oracle, s.x_prev, s.y_prev))]


def here(a, oracle, s):
    return [(s.v, _Phi(a, oracle, s.x, s.y)), (s.u, _G_y(oracle, s.x, s.y))]


def mrbo_d(a, oracle, s):
    return [(s.v, _Phi(a, oracle, s.x_prev, s.y_prev)), (s.u, _G_y(oracle, s.x_prev, s.y_last))]


def sustain(a, oracle, s):
    return [(s.u, _G_y(oracle, s.x_prev, s.y_prev))]  # v follows a series whose length changes


def stable(a, oracle, s):
    return [(s.H, _matrices(oracle, s.x_prev, s.y_prev))]


def rsvrb(a, oracle, s):
    F_x, F_y = oracle.grad_F(s.x_prev, s.y_prev, oracle.draw_F(keys.root(0), 1))
    G_y, H = _G_y(oracle, s.x_prev, s.y_prev), _matrices(oracle, s.x_prev, s.y_prev)
    return [(s.z.a, F_x), (s.z.b, F_y), (s.z.s, G_y), (s.z.H, H)]


def soba_directions(a, oracle, s):
    d = directions.on_all_data(oracle, directions.Point(s.x_prev, s.y_prev, s.v_prev))
    return [(s.d_x, d.x), (s.d_y, d.y), (s.d_v, d.v)]
