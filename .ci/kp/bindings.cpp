// Python bindings for the parts of Kompute that dmlgpu calls, named as in Kompute's package; only tensors of uint32.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "kompute.cpp"

namespace py = pybind11;

using Tensors = std::vector<std::shared_ptr<kp::Tensor>>;
using Words = py::array_t<uint32_t, py::array::c_style>;

static std::vector<uint32_t> vector_of(const Words& words) {
    return {words.data(), words.data() + words.size()};
}

static py::dict properties_of(const kp::Manager& manager) {
    const vk::PhysicalDeviceProperties properties = manager.getDeviceProperties();
    const auto& size = properties.limits.maxComputeWorkGroupSize;
    py::dict dict;
    dict["device_name"] = properties.deviceName.data();
    dict["max_work_group_size"] = py::make_tuple(size[0], size[1], size[2]);
    dict["max_work_group_invocations"] = properties.limits.maxComputeWorkGroupInvocations;
    return dict;
}

template <typename Operation>
static void bind_operation(py::module_& module, const char* name) {
    py::class_<Operation, kp::OpBase, std::shared_ptr<Operation>>(module, name, py::module_local())
        .def(py::init<const Tensors&>());
}

PYBIND11_MODULE(dmlgpu_kp, module) {
    module.attr("__version__") = VERSION_INFO;

    // A lack of memory becomes a MemoryError.
    py::register_local_exception_translator([](std::exception_ptr pointer) {
        try {
            std::rethrow_exception(pointer);
        } catch (const vk::OutOfHostMemoryError& error) {
            PyErr_SetString(PyExc_MemoryError, error.what());
        } catch (const vk::OutOfDeviceMemoryError& error) {
            PyErr_SetString(PyExc_MemoryError, error.what());
        } catch (const vk::TooManyObjectsError& error) {
            PyErr_SetString(PyExc_MemoryError, error.what());
        }
    });

    py::enum_<kp::Tensor::TensorTypes>(module, "TensorTypes", py::module_local())
        .value("device", kp::Tensor::TensorTypes::eDevice)
        .value("host", kp::Tensor::TensorTypes::eHost)
        .value("storage", kp::Tensor::TensorTypes::eStorage);

    py::class_<kp::Tensor, std::shared_ptr<kp::Tensor>>(module, "Tensor", py::module_local())
        // A view, which keeps the tensor but not its memory: none may be read after destroy().
        .def("data", [](kp::Tensor& tensor) {
            return py::array(tensor.size(), tensor.data<uint32_t>(), py::cast(&tensor));
        })
        .def("tensor_type", &kp::Tensor::tensorType)
        .def("is_init", &kp::Tensor::isInit)
        .def("destroy", &kp::Tensor::destroy);

    py::class_<kp::Algorithm, std::shared_ptr<kp::Algorithm>>(module, "Algorithm", py::module_local());

    py::class_<kp::OpBase, std::shared_ptr<kp::OpBase>>(module, "OpBase", py::module_local());
    bind_operation<kp::OpTensorSyncDevice>(module, "OpTensorSyncDevice");
    bind_operation<kp::OpTensorSyncLocal>(module, "OpTensorSyncLocal");
    bind_operation<kp::OpTensorCopy>(module, "OpTensorCopy");

    py::class_<kp::OpAlgoDispatch, kp::OpBase, std::shared_ptr<kp::OpAlgoDispatch>>(
        module, "OpAlgoDispatch", py::module_local())
        .def(py::init([](const std::shared_ptr<kp::Algorithm>& algorithm, const Words& push) {
                 return std::make_shared<kp::OpAlgoDispatch>(algorithm, vector_of(push));
             }),
             py::arg("algorithm"), py::arg("push_consts").noconvert());

    // Later dispatches begin when earlier ones have ended, and see what these wrote to the tensors.
    py::class_<kp::OpMemoryBarrier, kp::OpBase, std::shared_ptr<kp::OpMemoryBarrier>>(
        module, "OpMemoryBarrier", py::module_local())
        .def(py::init([](const Tensors& tensors) {
            const VkAccessFlags reads_and_writes = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
            return std::make_shared<kp::OpMemoryBarrier>(
                tensors, vk::AccessFlagBits::eShaderWrite, static_cast<vk::AccessFlagBits>(reads_and_writes),
                vk::PipelineStageFlagBits::eComputeShader, vk::PipelineStageFlagBits::eComputeShader);
        }));

    // While a thread waits for the device, others run Python, which keeps the arguments alive. Kompute must not call
    // Python then, so its logging, which does, is left out of the build.
    py::class_<kp::Sequence, std::shared_ptr<kp::Sequence>>(module, "Sequence", py::module_local())
        .def("record", [](kp::Sequence& sequence,
                          std::shared_ptr<kp::OpBase> operation) { return sequence.record(operation); })
        .def("eval", [](kp::Sequence& sequence) { return sequence.eval(); },
             py::call_guard<py::gil_scoped_release>())
        .def("eval", [](kp::Sequence& sequence,
                        std::shared_ptr<kp::OpBase> operation) { return sequence.eval(operation); },
             py::call_guard<py::gil_scoped_release>());

    py::class_<kp::Manager, std::shared_ptr<kp::Manager>>(module, "Manager", py::module_local())
        .def(py::init<uint32_t>(), py::arg("device") = 0)
        .def("destroy", &kp::Manager::destroy)
        .def("sequence", [](kp::Manager& manager) { return manager.sequence(); })
        // A tensor whose words may have any value.
        .def("empty", [](kp::Manager& manager, uint32_t size, kp::Tensor::TensorTypes type) {
            return manager.tensor(nullptr, size, sizeof(uint32_t), kp::Tensor::TensorDataTypes::eUnsignedInt, type);
        }, py::arg("size"), py::arg("tensor_type") = kp::Tensor::TensorTypes::eDevice)
        .def("tensor_t", [](kp::Manager& manager, const Words& words, kp::Tensor::TensorTypes type) {
            void* data = const_cast<uint32_t*>(words.data());
            return manager.tensor(data, static_cast<uint32_t>(words.size()), sizeof(uint32_t),
                                  kp::Tensor::TensorDataTypes::eUnsignedInt, type);
        }, py::arg("data").noconvert(), py::arg("tensor_type") = kp::Tensor::TensorTypes::eDevice)
        .def("algorithm", [](kp::Manager& manager, const Tensors& tensors, const py::bytes& spirv,
                             const kp::Workgroup& groups, const Words& constants, const Words& push) {
            const std::string code = spirv;
            std::vector<uint32_t> words(code.size() / sizeof(uint32_t));
            std::memcpy(words.data(), code.data(), words.size() * sizeof(uint32_t));
            return manager.algorithm(tensors, words, groups, vector_of(constants), vector_of(push));
        }, py::arg("tensors"), py::arg("spirv"), py::arg("workgroup"), py::arg("spec_consts").noconvert(),
           py::arg("push_consts").noconvert())
        .def("get_device_properties", &properties_of)
        // Bytes of each memory heap that the driver can still allocate; empty if it does not tell.
        .def("get_memory_left", &kp::Manager::getMemoryLeft);
}
