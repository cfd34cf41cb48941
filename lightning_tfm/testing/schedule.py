"""What every schedule of the learning rate has to hold."""

from dataclasses import replace

from lightning_tfm.config import Experiment, Training
from lightning_tfm.registry import SCHEDULES
from lightning_tfm.study.user_classes import user_classes
from lightning_tfm.training.schedule import Schedule, check_schedule


class ScheduleSuite:
    """Inherit it and name the class: `schedule = "my_module.MySchedule"`; `training` and `d_model` have a default."""

    schedule: str
    """the name in training.schedule"""
    training: Training = Training(steps=1000, warmup=100)
    d_model: int = 512

    def test_every_step_has_a_rate_that_depends_on_nothing_else(self) -> None:
        check_schedule(self._settings(), self.d_model)
        check_schedule(self._settings(steps=7, warmup=7), self.d_model)

    def test_the_factor_of_the_settings_acts(self) -> None:
        """Else rows and searches over training.lr_factor would train the same run again and again."""
        once, twice = (self._made(lr_factor=factor * self.training.lr_factor) for factor in (1, 2))
        assert any(once.rate(n) != twice.rate(n) for n in range(1, once.training.steps)), "lr_factor acts on no rate"

    def _settings(self, **change: float) -> Training:
        settings = replace(self.training, schedule=self.schedule, **change)  # type: ignore[arg-type]
        user_classes(Experiment(training=settings))  # looks in the working directory too
        return settings

    def _made(self, **change: float) -> Schedule:
        cls: type[Schedule] = SCHEDULES.find(self.schedule, "lightning_tfm.training.schedule")
        return cls(self._settings(**change), self.d_model)
