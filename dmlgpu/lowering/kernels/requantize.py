"""The two requantize*.comp: averages of quantized elements, from the sums of windows.

    scales of input and output       --- requantize_parameters -->  parameters   --- requantize --->  outputs
    zero points of input and output  --- requantize_parameters -->  of channels          ^
                                                                                   sums of windows

Parameters are partial results. They are computed first because Vulkan guarantees four bindings: the sums, both scales,
both zero points and the outputs would be six.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dmlgpu.errors import DescriptorError
from dmlgpu.lowering.kernels.kernel import BINDABLE, Kernel, constants_of, shader_of, wrapped
from dmlgpu.lowering.plan import Binding, Dispatch, NumberKind, Values
from dmlgpu.lowering.problem import Requantized, Role, Source

# Outputs of an item, which are a word, and its loads: a sum and four parameters per output.
_ITEM, _LOADS = 4, 20
# Words of a channel's parameters, and the loads of an item that writes some.
_WORDS, _CHANNEL_LOADS = 4, 2


@dataclass(frozen=True)
class Requantize(Kernel):
    """An invocation computes the outputs of a word."""

    name: ClassVar = "requantize"
    variants: ClassVar = {
        "requantize_parameters": "loads the scales of each channel as integers, or the zero points",
        "requantize": "one invocation per word of outputs: divides sums, and rounds exact quotients",
    }

    @cached_property
    def domain(self) -> Requantized:
        assert isinstance(self.problem.domain, Requantized)
        return self.problem.domain

    @property
    def elements(self) -> int:
        return self.problem.output_count + self.domain.channels

    @cached_property
    def partial_bytes(self) -> int:
        """Bytes of the parameters of all channels."""
        size, most = 4 * _WORDS * self.domain.channels, max(self.limits.segment_bytes, BINDABLE)
        if size > most:
            raise DescriptorError(
                f"QuantizedLinearAveragePoolingOperatorDesc.input_scale_tensor.sizes[1]: {self.domain.channels} is not "
                f"allowed; allowed on this device are numbers up to {most // 4 // _WORDS}"
            )
        return size

    def dispatches(self) -> Iterator[tuple[Dispatch, int]]:
        parameters = iter(self.problem.sources[1:])
        pairs = [(next(parameters), next(parameters) if has else None) for has in self.domain.has_zero_points]
        (of_input, of_output), zero_points = zip(*pairs, strict=True)
        yield from self._parameters([of_input, of_output])
        if any(zero_points):
            yield from self._parameters(zero_points, zero_points=True)
        yield from self._outputs()

    def _parameters(
        self, pair: Sequence[Source | None], *, zero_points: bool = False
    ) -> Iterator[tuple[Dispatch, int]]:
        """Loads scales or zero points, for each pair of their segments; one of the pair may be None."""
        channels, begin, most = self.domain.channels, 0, self.limits.dispatch_items(_CHANNEL_LOADS, _ITEM)
        bound = [one or next(filter(None, pair)) for one in pair]
        strides = [one.tensor.element_strides[1] if one.tensor.element_count > 1 else 0 for one in bound]
        while begin < channels:
            push: dict[str, Any] = {"first_channel": begin}
            bindings, end = [], min(channels, begin + most)
            for name, one, stride, source in zip(("input", "output"), bound, strides, pair, strict=True):
                segment = begin * stride // one.segment_size
                if stride:
                    end = min(end, -(-(segment + 1) * one.segment_size // stride))
                base, bits = f"{name}_base", one.tensor.data_type.bits
                push |= {base: wrapped(-segment * one.segment_size), f"{name}_stride": stride}
                push[f"{name}_mask"] = 0xFF if source else 0
                bindings.append(Binding(one.role, one.number, segment, base, bits))
            bindings.append(Binding(Role.PARTIALS, base="parameters_base", written=True))
            push |= {"channel_count": end - begin, "parameters_base": 0}
            constants = constants_of(self.problem, self.limits, (), zero_points=zero_points)
            shader = shader_of("requantize_parameters", self.problem, constants, built_in=True)
            outputs, loads = range(self.problem.output_count), self.limits.loads(end - begin, _CHANNEL_LOADS)
            yield Dispatch(shader, Values(**push), tuple(bindings), loads, outputs), self.partial_bytes
            begin = end

    def _outputs(self) -> Iterator[tuple[Dispatch, int]]:
        """Computes outputs, for each segment of the sums and each of the outputs."""
        (output,), sums, windows = self.problem.outputs, self.problem.sources[0], self.domain.windows
        fields = windows.fields
        whole = not any(window.overhang or window.start_padding for window in windows.along)
        constants = constants_of(
            self.problem,
            self.limits,
            self.problem.outputs,
            output_kind=NumberKind.of(output.tensor.data_type),
            whole=whole,
            counts_padding=windows.include_padding and not whole,
            dilated=any(window.dilation > 1 for window in windows.along),
        )
        shader = shader_of("requantize", self.problem, constants)
        push = {name: fields[name] for name in ("size", "output_size", "window_size", "dilation", "start_padding")}
        push |= {"window_stride": fields["stride"], "counted_end": fields["counted_end"]}
        begin, most = 0, self.limits.dispatch_items(_LOADS, _ITEM) * _ITEM
        while begin < self.problem.output_count:
            ends = [(begin // one.segment_size + 1) * one.segment_size for one in (sums, output)]
            end = min(begin + most, self.problem.output_count, *ends)
            segment = begin // sums.segment_size
            places = {
                "source_base": wrapped(-segment * sums.segment_size),
                "parameters_base": 0,
                "values_base": wrapped(self.output_offset(begin, 0) - begin),
                "first_output": begin,
                "output_count": end - begin,
                "channels": self.domain.channels,
            }
            bindings = (
                self.source_binding(segment),
                Binding(Role.PARTIALS, base="parameters_base"),
                self.output_binding(begin, 0, "values_base"),
            )
            loads = self.limits.loads(-(-(end - begin) // _ITEM), _LOADS)
            yield Dispatch(shader, Values(**push, **places), bindings, loads, range(begin, end)), self.partial_bytes
            begin = end
