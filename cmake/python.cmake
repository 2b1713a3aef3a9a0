# What `pip install` adds to the library: the library and its header inside the package, and the compiled half of the
# memory exchange. Only that last part is C++; without a C++ compiler the package is built all the same, without it.

# A wheel holds no symbolic links, so there the library has one name alone.
set_property(TARGET nncuda PROPERTY VERSION)
set_property(TARGET nncuda PROPERTY SOVERSION)
set_property(TARGET nncuda PROPERTY NO_SONAME ON)
install(TARGETS nncuda LIBRARY DESTINATION nncuda COMPONENT python RUNTIME DESTINATION nncuda COMPONENT python)
install(FILES bindings.h DESTINATION nncuda COMPONENT python)
# `nncuda verify` works anywhere, so the fixtures travel with the package.
install(DIRECTORY tests/golden/ DESTINATION nncuda/golden/fixtures COMPONENT python
        FILES_MATCHING PATTERN "*.safetensors" PATTERN "cases" EXCLUDE PATTERN "__pycache__" EXCLUDE)

include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  set(CMAKE_CXX_STANDARD 17)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
  find_package(pybind11 CONFIG REQUIRED)
  pybind11_add_module(nncuda_exchange MODULE python/nncuda/binding/_exchange.cpp)
  set_target_properties(nncuda_exchange PROPERTIES OUTPUT_NAME _exchange)
  target_compile_options(nncuda_exchange PRIVATE -Wall -Wextra)
  install(TARGETS nncuda_exchange LIBRARY DESTINATION nncuda/binding COMPONENT python)
else()
  message(WARNING "No C++ compiler: building without nncuda.binding._exchange. DLPack and memoryview will not work; "
                  "everything else will.")
endif()
