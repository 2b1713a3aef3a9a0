/*
 * The compiled half of the memory exchange: DLPack capsules and the buffer protocol.
 *
 * Both need C: a capsule carries function pointers that other libraries call from any thread, and before Python 3.12 no
 * Python class can offer the buffer protocol. What is exported is decided in exchange.py; here it only changes form.
 * The keeper that travels with each export is a Python object that holds the memory; dropping it gives the memory back.
 */
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace {

/* The structures of DLPack 1.0 (and, without version and flags, of its first form), as its specification lays them
 * out. */
struct Device {
  int32_t type;
  int32_t index;
};

struct ElementType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Array {
  void *data;
  Device device;
  int32_t ndim;
  ElementType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; null means row-major and dense */
  uint64_t byte_offset;
};

struct FirstForm {
  Array array;
  void *manager;
  void (*deleter)(FirstForm *);
};

struct VersionedForm {
  uint32_t major, minor;
  void *manager;
  void (*deleter)(VersionedForm *);
  uint64_t flags;
  Array array;
};

constexpr uint64_t kReadOnly = 1;

template <class Form> struct Names;
template <> struct Names<FirstForm> {
  static constexpr const char *fresh = "dltensor";
  static constexpr const char *used = "used_dltensor";
};
template <> struct Names<VersionedForm> {
  static constexpr const char *fresh = "dltensor_versioned";
  static constexpr const char *used = "used_dltensor_versioned";
};

/* An export: the form that the consumer reads, and what it points to. */
template <class Form> struct Exported {
  Form form;
  std::vector<int64_t> shape, strides;
  PyObject *keeper;
};

/* Called by the consumer when it is done: from any thread, with or without the interpreter's lock. */
template <class Form> void release(Form *form) {
  auto *exported = static_cast<Exported<Form> *>(form->manager);
  /* After the interpreter has gone there is no object left to drop, and the process is about to end. */
  if (Py_IsInitialized()) {
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_XDECREF(exported->keeper);
    PyGILState_Release(state);
  }
  delete exported;
}

/* Runs when a capsule dies. Nobody has taken the memory over while it still has its fresh name. */
template <class Form> void drop_capsule(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, Names<Form>::fresh)) {
    auto *form = static_cast<Form *>(PyCapsule_GetPointer(capsule, Names<Form>::fresh));
    form->deleter(form);
  }
}

std::vector<int64_t> integers(const py::tuple &tuple) {
  std::vector<int64_t> values;
  for (const auto &item : tuple) {
    values.push_back(item.cast<int64_t>());
  }
  return values;
}

template <class Form>
py::object make_capsule(py::object keeper, uintptr_t address, const py::tuple &device, const py::tuple &dtype,
                        const py::tuple &shape, const py::tuple &strides, bool readonly) {
  auto exported = std::make_unique<Exported<Form>>();
  exported->shape = integers(shape);
  exported->strides = integers(strides);
  Form &form = exported->form;
  form = Form{};
  form.array.data = reinterpret_cast<void *>(address);
  form.array.device = {device[0].cast<int32_t>(), device[1].cast<int32_t>()};
  form.array.ndim = static_cast<int32_t>(exported->shape.size());
  form.array.dtype = {dtype[0].cast<uint8_t>(), dtype[1].cast<uint8_t>(), 1};
  form.array.shape = exported->shape.data();
  form.array.strides = exported->strides.data();
  form.manager = exported.get();
  form.deleter = release<Form>;
  if constexpr (std::is_same_v<Form, VersionedForm>) {
    form.major = 1;
    form.minor = 0;
    form.flags = readonly ? kReadOnly : 0;
  } else {
    (void)readonly; /* the first form cannot say it; exchange.py refuses such an export */
  }
  PyObject *capsule = PyCapsule_New(&form, Names<Form>::fresh, drop_capsule<Form>);
  if (capsule == nullptr) {
    throw py::error_already_set();
  }
  exported->keeper = keeper.release().ptr();
  exported.release();
  return py::reinterpret_steal<py::object>(capsule);
}

py::object to_capsule(py::object keeper, uintptr_t address, const py::tuple &device, const py::tuple &dtype,
                      const py::tuple &shape, const py::tuple &strides, bool readonly, bool versioned) {
  return versioned ? make_capsule<VersionedForm>(std::move(keeper), address, device, dtype, shape, strides, readonly)
                   : make_capsule<FirstForm>(std::move(keeper), address, device, dtype, shape, strides, readonly);
}

template <class Form> py::tuple take_capsule(const py::object &capsule) {
  auto *form = static_cast<Form *>(PyCapsule_GetPointer(capsule.ptr(), Names<Form>::fresh));
  if (form == nullptr) {
    throw py::error_already_set();
  }
  bool readonly = false;
  if constexpr (std::is_same_v<Form, VersionedForm>) {
    /* Of another major version only the deleter may be called, which the capsule itself does. */
    if (form->major != 1) {
      throw py::buffer_error("the array speaks DLPack " + std::to_string(form->major) + "." +
                             std::to_string(form->minor) + "; this package knows 1.x");
    }
    readonly = (form->flags & kReadOnly) != 0;
  }
  /* From here on the memory is ours to release: the keeper does it when it dies. */
  PyCapsule_SetName(capsule.ptr(), Names<Form>::used);
  py::capsule keeper(static_cast<void *>(form), [](void *taken) {
    auto *mine = static_cast<Form *>(taken);
    if (mine->deleter != nullptr) {
      mine->deleter(mine);
    }
  });
  const Array &array = form->array;
  py::tuple shape(array.ndim), strides(array.ndim);
  int64_t step = 1;
  for (int32_t axis = array.ndim - 1; axis >= 0; axis--) {
    shape[axis] = array.shape[axis];
    strides[axis] = array.strides != nullptr ? array.strides[axis] : step;
    step *= array.shape[axis];
  }
  const uintptr_t address = reinterpret_cast<uintptr_t>(array.data) + array.byte_offset;
  const py::tuple dtype = py::make_tuple(array.dtype.code, array.dtype.bits, array.dtype.lanes);
  return py::make_tuple(keeper, address, dtype, shape, strides, readonly);
}

py::tuple from_capsule(const py::object &capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), Names<VersionedForm>::fresh)) {
    return take_capsule<VersionedForm>(capsule);
  }
  if (PyCapsule_IsValid(capsule.ptr(), Names<FirstForm>::fresh)) {
    return take_capsule<FirstForm>(capsule);
  }
  throw py::type_error("__dlpack__ gave no fresh DLPack capsule");
}

/* What a buffer's user may look at until he releases it. */
struct View {
  py::object keeper;
  std::string format;
  std::vector<Py_ssize_t> shape, strides;
};

/* Fills a Py_buffer from exchange.buffer_fields(self). Python calls it without any C++ above, so nothing may be
 * thrown. */
int get_buffer(PyObject *self, Py_buffer *buffer, int flags) {
  static char nothing; /* where a buffer of no elements points to */
  buffer->obj = nullptr;
  try {
    const py::tuple fields =
        py::module_::import("nncuda.binding.exchange").attr("buffer_fields")(py::reinterpret_borrow<py::object>(self));
    auto view = std::make_unique<View>();
    view->keeper = fields[0];
    const auto address = fields[1].cast<uintptr_t>();
    view->format = fields[2].cast<std::string>();
    buffer->itemsize = fields[3].cast<Py_ssize_t>();
    buffer->len = buffer->itemsize;
    for (const auto &item : fields[4].cast<py::tuple>()) {
      view->shape.push_back(item.cast<Py_ssize_t>());
      buffer->len *= view->shape.back();
    }
    for (const auto &item : fields[5].cast<py::tuple>()) {
      view->strides.push_back(item.cast<Py_ssize_t>());
    }
    buffer->readonly = fields[6].cast<bool>();
    buffer->buf = address != 0 ? reinterpret_cast<void *>(address) : &nothing;
    buffer->ndim = static_cast<int>(view->shape.size());
    buffer->format = (flags & PyBUF_FORMAT) != 0 ? view->format.data() : nullptr;
    buffer->shape = view->shape.data();
    buffer->strides = view->strides.data();
    buffer->suboffsets = nullptr;
    const auto asks = [flags](int what) { return (flags & what) == what; };
    const bool rows = PyBuffer_IsContiguous(buffer, 'C') != 0;
    const bool columns = PyBuffer_IsContiguous(buffer, 'F') != 0;
    if (asks(PyBUF_WRITABLE) && buffer->readonly) {
      throw py::buffer_error("the tensor is read-only");
    }
    if ((asks(PyBUF_C_CONTIGUOUS) && !rows) || (asks(PyBUF_F_CONTIGUOUS) && !columns) ||
        (asks(PyBUF_ANY_CONTIGUOUS) && !rows && !columns) || (!asks(PyBUF_STRIDES) && !rows)) {
      throw py::buffer_error("the tensor's memory is not contiguous in the order that was asked for");
    }
    if (!asks(PyBUF_ND)) {
      buffer->shape = nullptr;
    }
    if (!asks(PyBUF_STRIDES)) {
      buffer->strides = nullptr;
    }
    buffer->internal = view.release();
    buffer->obj = self;
    Py_INCREF(self);
    return 0;
  } catch (py::error_already_set &error) {
    error.restore();
  } catch (const std::exception &error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  }
  return -1;
}

void release_buffer(PyObject *, Py_buffer *buffer) {
  delete static_cast<View *>(buffer->internal);
  buffer->internal = nullptr;
}

/* A base class without fields that adds the buffer protocol to the Python class that inherits from it. */
py::object buffer_protocol() {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer)},
                                {Py_bf_releasebuffer, reinterpret_cast<void *>(release_buffer)},
                                {Py_tp_doc, const_cast<char *>("Adds the buffer protocol.")},
                                {0, nullptr}};
  static PyType_Spec spec = {"nncuda.binding._exchange.BufferProtocol", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                             slots};
  PyObject *type = PyType_FromSpec(&spec);
  if (type == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(type);
}

} // namespace

PYBIND11_MODULE(_exchange, module) {
  module.doc() = "DLPack capsules and the buffer protocol: the part of the memory exchange that needs C.";
  module.attr("BufferProtocol") = buffer_protocol();
  module.def("to_capsule", &to_capsule, "A DLPack capsule over memory that `keeper` holds.");
  module.def("from_capsule", &from_capsule, "Takes a capsule: keeper, address, dtype, shape, strides, read-only.");
}
