"""An optimiser that takes part in the exchange: `optim`.

A residual sends sums of many gradients at once, and rarely. Momentum after it smears each over the
steps that follow, and Adam, which is not linear, takes it for noise. So `optim` moves the momentum
before the selection (`feedback/momentum.py`), or, where something of every element is sent, all of
Adam (`feedback/adam.py`), and takes what is left of the step afterwards.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from glob import escape
from typing import Any, cast

import torch
from torch import Tensor

from thinwire import cookbook, foreach
from thinwire.auto import Auto, dense_pipeline
from thinwire.by_name import ByName
from thinwire.comm import node_size_of
from thinwire.engine.finite import values_of
from thinwire.errors import RecipeError
from thinwire.feedback import Adam, Momentum, NoFeedback, Residual
from thinwire.frontends.compress import compress, ddp_of
from thinwire.frontends.ddp import named
from thinwire.frontends.handle import Handle, check_order
from thinwire.frontends.momentum import TakesPart
from thinwire.pipeline import Pipeline
from thinwire.sparsify import Everything
from thinwire.types import Feedback

REFRESH = 10  # steps; of every element something is sent in each
WHOLE = dataclasses.replace(dense_pipeline(NoFeedback()), unit="model")
"""How small tensors travel: all together, and with nothing kept."""


class Optimizer(TakesPart, torch.optim.Optimizer):
    """What `optim` gives back, in place of the optimiser that it was given.

    Both have the same `param_groups`, so that schedulers may hold either. `handle` is that of
    `compress`.
    """

    def __init__(
        self, given: torch.optim.Optimizer, handle: Handle, taken: Mapping[Tensor, Feedback]
    ) -> None:
        super().__init__(given.param_groups, given.defaults)
        self.given, self.handle, self._taken = given, handle, taken
        self._moved = [
            {taken[p] for p in group["params"] if p in taken} for group in given.param_groups
        ]  # of each group, what came before the exchange
        self._exchanged = False  # since the last step
        handle.synchronizer.after_step.append(self._note_exchange)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Go on from what the backward pass left in the gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._refuse_local_gradients()
        for group, moved in zip(self.param_groups, self._moved, strict=True):
            _refuse_other_moments(group, moved)
        by_way: dict[Way, list[Tensor]] = {way: [] for way in Way}
        for group in self.param_groups:
            ready = [p for p in group["params"] if p.grad is not None]
            own = [p for p in ready if self._way(p) is Way.OWN]
            with torch.no_grad():
                self._step_group(own, group)
            for p in ready:
                by_way[self._way(p)].append(p)
        self._step_given(by_way, Way.GIVEN)
        with _without_momentum(self.given.param_groups):
            self._step_given(by_way, Way.CORRECTED)
        return loss

    def _note_exchange(self) -> None:
        self._exchanged = True

    def _refuse_local_gradients(self) -> None:
        """They would be taken for the ranks' mean, or for steps. Zeros are the same on all."""
        exchanged, self._exchanged = self._exchanged, False
        grads = (p.grad for group in self.param_groups for p in group["params"])
        if not exchanged and any(g is not None and bool(values_of(g).any()) for g in grads):
            raise RecipeError(
                "no backward pass of the DDP model has exchanged these gradients: call backward() "
                "outside of no_sync(), and set none by hand, as torch.autograd.grad's"
            )

    def state_dict(self) -> dict[str, Any]:
        """The given optimiser's, with all that this rank's exchange must remember: of each rank."""
        return self.given.state_dict() | {"thinwire": self.handle.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a saved state, at the same number of ranks; else see `handle`."""
        plain = {key: value for key, value in state_dict.items() if key != "thinwire"}
        before = self.given.state_dict()
        self.given.load_state_dict(plain)
        try:
            if "thinwire" in state_dict:
                self.handle.load_state_dict(state_dict["thinwire"])
        except Exception:
            self.given.load_state_dict(before)  # all or nothing
            raise
        finally:
            self.param_groups = self.given.param_groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused once DDP knows its parameters, as DDP itself would not hear of them."""
        if hasattr(self, "given"):
            raise RecipeError("parameters cannot be added after optim(): make the optimiser anew")
        super().add_param_group(param_group)

    def _step_group(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """p ← p - lr·(step + weight decay): AdamW's, or what SGD's momentum makes of it."""
        if not parameters:
            return
        steps, lr = [p.grad for p in parameters if p.grad is not None], group["lr"]
        if decay := group.get("weight_decay", 0):
            if isinstance(self._taken[parameters[0]], Momentum):
                decays = self._decays(parameters, group["momentum"], decay)
                steps = list(foreach.add(steps, decays))
            else:
                foreach.mul_(parameters, 1 - lr * decay)
        foreach.add_(parameters, foreach.mul(steps, -lr))

    def _decays(self, parameters: list[Tensor], momentum: float, decay: float) -> list[Tensor]:
        """The momentum of the weights' decay, which is the same on all ranks and is not sent.

        SGD adds it to the gradient; momentum is linear, so that it may be added to the step.
        """
        kept = [self.given.state[p] for p in parameters]
        for state, p in zip(kept, parameters, strict=True):
            state.setdefault("decay", torch.zeros_like(p))
        decays: list[Tensor] = [state["decay"] for state in kept]
        foreach.mul_(decays, momentum)
        foreach.add_(decays, parameters, alpha=decay)
        return decays

    def _way(self, p: Tensor) -> "Way":
        assert p.grad is not None
        feedback = self._taken.get(p)
        if feedback is None or p.grad.is_sparse:
            return Way.GIVEN
        return Way.CORRECTED if _comes_apart(feedback, self.given) else Way.OWN

    def _step_given(self, by_way: Mapping["Way", list[Tensor]], way: "Way") -> None:
        """The given optimiser's turn, which sees the gradients of one way only."""
        if not by_way[way]:
            return
        hidden = [(p, p.grad) for other in Way if other is not way for p in by_way[other]]
        for p, _ in hidden:
            p.grad = None
        try:
            self.given.step()
        finally:
            for p, grad in hidden:
                p.grad = grad


class Way(Enum):
    """How a parameter is stepped."""

    GIVEN = "as ever: its gradient is the mean"
    CORRECTED = "by the given optimiser without its momentum, which comes before the selection"
    OWN = "here: its gradient is the step"


def _refuse_other_moments(group: Mapping[str, Any], moved: Iterable[Feedback]) -> None:
    """What moved before the exchange stays as it was there, whatever a scheduler says here."""
    for feedback in moved:
        if isinstance(feedback, Adam):
            taken: object = feedback.beta1, feedback.beta2, feedback.eps
            now: object = *group["betas"], group["eps"]
        else:
            taken = cast(Momentum, feedback).factor
            now = group["betas"][0] if "betas" in group else group["momentum"]
        if now != taken:
            raise RecipeError(
                f"the momentum was {taken} when optim() took it over, and is set to {now} now, "
                "where it has no effect: keep it as it is (cycle_momentum=False in a scheduler "
                "that has it)"
            )


@contextmanager
def _without_momentum(groups: Sequence[dict[str, Any]]) -> Iterator[None]:
    """Adam with β₁ = 0."""
    kept = [group.get("betas") for group in groups]
    for group, betas in zip(groups, kept, strict=True):
        if betas is not None:
            group["betas"] = (0.0, betas[1])
    try:
        yield
    finally:
        for group, betas in zip(groups, kept, strict=True):
            if betas is not None:
                group["betas"] = betas


def optim(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    recipe: Pipeline | str | Mapping[str, Any],
    *,
    refresh: int | None = None,
    **settings: Any,
) -> Optimizer:
    """Exchange the gradients of a DDP model by a recipe that the optimiser takes part in.

        optimizer = thinwire.optim(torch.optim.AdamW(ddp.parameters(), lr), ddp, "topk(0.01)")

    The training loop stays as it is. Where the recipe keeps a residual,

    - behind a selection the momentum of `SGD`, `Adam` and `AdamW` moves before it, as DGC's
      momentum correction (the feedback `momentum`); Adam's second moment stays after it;
    - where something of every element is sent, as by `signsgd`, all of Adam moves before the
      exchange (the feedback `adam`), and its second moment is refreshed by a dense average of the
      gradients every `refresh` steps, 10 by default. A `refresh` asks for this way behind a
      selection too; 0 does without.

    Tensors of at most `bypass` elements travel whole; behind a selection Adam has no momentum for
    them either, so that they keep up with the others. Tensors of a recipe that keeps nothing are
    stepped by the optimiser as ever. `settings` are those of `compress`. After `backward()` the
    gradients are no longer the mean of the ranks': do not clip them.
    """
    check_order(model, "optim(optimizer, model, recipe)")
    ddp = ddp_of(model, "optim")
    pipeline = cookbook.recipe(recipe)
    if isinstance(pipeline, Auto):
        raise RecipeError("a recipe that chooses may go back to gradients: name one for optim()")
    workers = ddp.process_group.size() // node_size_of(settings.get("node_size", 1))
    recipes: dict[str, Pipeline] = {}
    taken: dict[Tensor, Feedback] = {}
    feedbacks = _feedbacks(optimizer, max(1, workers))
    for name, parameter in named(ddp).items():
        own, feedback = pipeline.of_tensor(name), feedbacks.get(parameter)
        if feedback is not None and isinstance(own.feedback, Residual | Momentum | Adam):
            moved = _in_place_of(own, feedback, refresh)
            small = parameter.numel() <= own.bypass
            own = WHOLE if small else dataclasses.replace(own, feedback=moved)
            if not small or _comes_apart(moved, optimizer):
                taken[parameter] = moved
        recipes[name] = own
    return Optimizer(optimizer, compress(model, _joined(recipes), **settings), taken)


def _comes_apart(feedback: Feedback, optimizer: torch.optim.Optimizer) -> bool:
    """Whether momentum is before the exchange and the rest of Adam after it."""
    return isinstance(feedback, Momentum) and not isinstance(optimizer, torch.optim.SGD)


def _joined(recipes: Mapping[str, Pipeline]) -> Pipeline:
    """One recipe of these, by name; what most of the tensors have is for all others."""
    all_of_them = list(recipes.values())
    most = max(all_of_them, key=all_of_them.count)
    rules = [(escape(name), own) for name, own in recipes.items() if own != most]
    return ByName.of([*rules, ("*", most)]) if rules else most


def _in_place_of(recipe: Pipeline, adam: Feedback, refresh: int | None) -> Feedback:
    """What goes before the exchange; what the recipe's own feedback says beside it stays."""
    own, whole = recipe.feedback, isinstance(recipe.sparsifier, Everything)
    if isinstance(adam, Adam) and (whole or refresh is not None or isinstance(own, Adam)):
        if refresh is None:
            refresh = own.refresh if isinstance(own, Adam) else REFRESH
        return dataclasses.replace(adam, refresh=refresh)
    factor = adam.beta1 if isinstance(adam, Adam) else cast(Momentum, adam).factor
    return dataclasses.replace(own if isinstance(own, Momentum) else Momentum(), factor=factor)


def _feedbacks(optimizer: torch.optim.Optimizer, workers: int) -> dict[Tensor, Feedback]:
    """What takes the place of the optimiser's moments, for the parameters of each group."""
    feedbacks: dict[Tensor, Feedback] = {}
    for group in optimizer.param_groups:
        feedback = _feedback(optimizer, group, workers)
        if feedback is not None:
            feedbacks |= dict.fromkeys(group["params"], feedback)
    return feedbacks


def _feedback(
    optimizer: torch.optim.Optimizer, group: Mapping[str, Any], workers: int
) -> Feedback | None:
    """The feedback of one group; None where the optimiser is linear in the gradient."""
    refused = [key for key in ("amsgrad", "maximize", "nesterov", "dampening") if group.get(key)]
    kind = type(optimizer).__name__
    if refused:
        raise RecipeError(f"{kind} with {refused[0]}={group[refused[0]]} cannot take part")
    if type(optimizer) is torch.optim.SGD:
        return Momentum(group["momentum"]) if group["momentum"] else None
    if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW):
        raise RecipeError(f"optim() knows Adam, AdamW and SGD, not {kind}: use compress() with it")
    coupled = group["weight_decay"] and not group.get("decoupled_weight_decay", True)
    if coupled:
        raise RecipeError(
            f"Adam with weight_decay={group['weight_decay']} adds it to gradients that are no "
            "longer there: use AdamW"
        )
    beta1, beta2 = group["betas"]
    return Adam(float(beta1), float(beta2), group["eps"], workers)
