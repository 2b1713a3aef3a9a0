# The GPU engine: finds a CUDA compiler, chooses the GPU architectures, and adds cuda/kernels/*.cu to the library. Sets
# nn_cuda_text, what nncuda_build_info says of it. The runtime is linked statically and the driver is not linked at all:
# the same file serves machines without one.
set(NNCUDA_CUDA AUTO CACHE STRING "The GPU engine: AUTO (in when a CUDA compiler is found), ON or OFF")
set_property(CACHE NNCUDA_CUDA PROPERTY STRINGS AUTO ON OFF)
set(NNCUDA_CUDA_ARCHITECTURES "" CACHE STRING
    "GPU architectures, spelled as CMake does, such as 80;90a-real; all for every one of a release; empty for this machine's")
set(nn_cuda_text none)
set(nn_cuda_toolchain ${CMAKE_SOURCE_DIR}/build/cuda-toolchain/13)
file(GLOB nn_cuda_sources CONFIGURE_DEPENDS cuda/kernels/*.cu)
if(NOT NNCUDA_CUDA)
  return()
endif()
if(NNCUDA_CUDA STREQUAL "AUTO" AND (CMAKE_CROSSCOMPILING OR NNCUDA_SANITIZE))
  return() # the sanitizers know nothing of device memory
endif()

# Where nvcc is: chosen by name (CMAKE_CUDA_COMPILER, CUDACXX), on PATH, in CUDA_HOME, or put there by our own make.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(NNCUDA_NVCC nvcc DOC "The CUDA compiler"
               PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda ${nn_cuda_toolchain} PATH_SUFFIXES bin)
  mark_as_advanced(NNCUDA_NVCC)
  if(NOT NNCUDA_NVCC)
    set(nn_cuda_missing "no nvcc on PATH, in CUDA_HOME, CUDA_PATH or /usr/local/cuda, nor in ${nn_cuda_toolchain}. \
`make cuda-toolchain` puts one there, from PyPI, without root and without a GPU")
    if(NNCUDA_CUDA STREQUAL "AUTO")
      message(STATUS "Without the GPU engine: ${nn_cuda_missing}")
      return()
    endif()
    message(FATAL_ERROR "NNCUDA_CUDA is ${NNCUDA_CUDA}, but there is ${nn_cuda_missing}. "
                        "-DNNCUDA_CUDA=OFF builds the library for the CPU alone.")
  endif()
  message(STATUS "CUDA compiler: ${NNCUDA_NVCC}")
  set(ENV{CUDACXX} ${NNCUDA_NVCC})
endif()
# The project sets the flags of each architecture itself, a file at a time: CMake's list is one a target.
set(CMAKE_CUDA_ARCHITECTURES OFF)
if(NNCUDA_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(WARNING "Without the GPU engine: $ENV{CUDACXX} does not compile here, perhaps because there is no C++ "
                    "compiler that it knows. -DNNCUDA_CUDA=ON shows what is wrong, -DNNCUDA_CUDA=OFF silences this.")
    return()
  endif()
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA")
  message(FATAL_ERROR "The GPU engine is compiled by NVIDIA's nvcc, not by ${CMAKE_CUDA_COMPILER}. "
                      "Set CUDACXX to an nvcc, or -DNNCUDA_CUDA=OFF.")
endif()
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
  message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}; 12.0 is the first that will do. "
                      "`make cuda-toolchain` fetches 13.0 from PyPI; -DNNCUDA_CUDA=OFF does without.")
endif()

execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE nn_cuda_known
                RESULT_VARIABLE nn_cuda_failed)
if(nn_cuda_failed)
  message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} --list-gpu-arch failed")
endif()
string(REGEX MATCHALL "[0-9]+" nn_cuda_known "${nn_cuda_known}")
include(cmake/cuda_architectures.cmake)
nn_cuda_choose(nn_cuda_archs "CUDA ${CMAKE_CUDA_COMPILER_VERSION}" "${NNCUDA_CUDA_ARCHITECTURES}" "${nn_cuda_known}")
nn_cuda_split(nn_cuda_archs_products nn_cuda_archs_others ${nn_cuda_archs})
nn_cuda_codes(nn_cuda_flags_products nn_cuda_names_products ${nn_cuda_archs_products})
nn_cuda_codes(nn_cuda_flags_others nn_cuda_names ${nn_cuda_archs_others})
foreach(source IN LISTS nn_cuda_sources)
  if(source MATCHES "/(gemm|grouped_gemm|attention)[a-z0-9_]*\\.cu$")
    set(nn_cuda_flags "${nn_cuda_flags_products}")
    if(source MATCHES "gemm_fp8_mma") # which alone tells 89 from 80
      string(REPLACE "arch=compute_80,code=[sm_89]" "arch=compute_89,code=[sm_89]" nn_cuda_flags "${nn_cuda_flags}")
    endif()
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${nn_cuda_flags}")
    list(APPEND nn_cuda_names ${nn_cuda_names_products})
  else()
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${nn_cuda_flags_others}")
  endif()
endforeach()
list(REMOVE_DUPLICATES nn_cuda_names)
list(SORT nn_cuda_names COMPARE NATURAL)
set(nn_cuda_names_ptx ${nn_cuda_names})
list(FILTER nn_cuda_names EXCLUDE REGEX compute)
list(FILTER nn_cuda_names_ptx INCLUDE REGEX compute)
list(APPEND nn_cuda_names ${nn_cuda_names_ptx})
string(REPLACE ";" " " nn_cuda_names "${nn_cuda_names}")
set(nn_cuda_text "${nn_cuda_names}, toolkit ${CMAKE_CUDA_COMPILER_VERSION}")
message(STATUS "GPU engine for ${nn_cuda_text}, by ${CMAKE_CUDA_COMPILER}")

# The host side is C++ without what would need libstdc++ at run time. ptxas tells what each kernel takes, which
# cmake/ptxas.sh keeps beside the object.
add_library(nncuda_cuda OBJECT ${nn_cuda_sources})
target_include_directories(nncuda_cuda PRIVATE ${CMAKE_SOURCE_DIR}/cuda)
set(NNCUDA_CUDA_COMPRESS size CACHE STRING
    "How nvcc (from 12.8) compresses GPU code, its --compress-mode: size is smallest, balance a third larger and much sooner done")
set(nn_cuda_compress -Xfatbin=-compress-all) # to a tenth of the size; unpacking at load is quick
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
  list(APPEND nn_cuda_compress --compress-mode=${NNCUDA_CUDA_COMPRESS})
endif()
target_compile_options(
  nncuda_cuda PRIVATE -lineinfo -Xptxas=-v ${nn_cuda_compress}
                      -Xcompiler=-Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics)
set(nn_cuda_launcher sh ${CMAKE_SOURCE_DIR}/cmake/ptxas.sh ${CMAKE_CUDA_COMPILER_LAUNCHER})
set_target_properties(
  nncuda_cuda
  PROPERTIES CUDA_STANDARD 17
             CUDA_STANDARD_REQUIRED ON
             CUDA_EXTENSIONS OFF
             CUDA_VISIBILITY_PRESET hidden
             POSITION_INDEPENDENT_CODE ON
             CUDA_COMPILER_LAUNCHER "${nn_cuda_launcher}")
find_library(NNCUDA_CUDART cudart_static DOC "The CUDA runtime, static" HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES}
             REQUIRED)
mark_as_advanced(NNCUDA_CUDART)
# C's driver links, so that libstdc++ stays out; CMake would else add what nvcc names.
set(CMAKE_CUDA_IMPLICIT_LINK_LIBRARIES "")
set_target_properties(nncuda PROPERTIES LINKER_LANGUAGE C CUDA_ARCHITECTURES OFF CUDA_RUNTIME_LIBRARY None
                                        CUDA_RESOLVE_DEVICE_SYMBOLS OFF)
target_sources(nncuda PRIVATE $<TARGET_OBJECTS:nncuda_cuda>)
target_compile_definitions(nncuda PRIVATE NNCUDA_CUDA=1)
target_link_libraries(nncuda PRIVATE ${NNCUDA_CUDART} Threads::Threads dl rt)

# CUDA 13 no longer compiles for sm_70, where clang still does, with the headers of CUDA 12: `make cuda` builds sm_70 to
# see that the code holds there, and `make cuda-toolchain` brings those headers.
if(NOT 70 IN_LIST nn_cuda_known)
  find_program(NNCUDA_CLANG NAMES clang-19 clang-20 clang-21 clang DOC "clang from 19, for the check of sm_70")
  mark_as_advanced(NNCUDA_CLANG)
  set(nn_cuda_12 ${CMAKE_SOURCE_DIR}/build/cuda-toolchain/12)
  set(nn_clang_version 0)
  if(NNCUDA_CLANG)
    execute_process(COMMAND ${NNCUDA_CLANG} --version OUTPUT_VARIABLE nn_clang_version)
    string(REGEX REPLACE ".*version ([0-9]+).*" "\\1" nn_clang_version "${nn_clang_version}")
  endif()
  if(nn_clang_version GREATER_EQUAL 19 AND EXISTS ${nn_cuda_12}/bin/ptxas)
    set(nn_sm_70_objects "")
    # Host code alone has no part in it: clang would put its tables of functions on the device.
    list(FILTER nn_cuda_sources EXCLUDE REGEX "/(engine|streams)\\.cu$")
    foreach(source IN LISTS nn_cuda_sources)
      get_filename_component(name ${source} NAME)
      set(object ${CMAKE_BINARY_DIR}/sm_70/${name}.o)
      list(APPEND nn_sm_70_objects ${object})
      add_custom_command(
        OUTPUT ${object}
        COMMAND
          sh ${CMAKE_SOURCE_DIR}/cmake/ptxas.sh ${NNCUDA_CLANG} -x cuda --cuda-device-only --cuda-gpu-arch=sm_70
          --cuda-path=${nn_cuda_12} -Xcuda-ptxas -v -std=c++17 -O3 -Wall -Wextra -Werror -Wno-unknown-cuda-version
          -Wno-pass-failed # what clang does not optimise is no defect of the code
          -fno-crash-diagnostics -I${CMAKE_SOURCE_DIR}/cuda
          -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
        DEPENDS ${source} ${CMAKE_SOURCE_DIR}/cmake/ptxas.sh
        DEPFILE ${object}.d
        COMMENT "Checking ${name} for sm_70"
        VERBATIM)
    endforeach()
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/sm_70)
    add_custom_target(sm_70 DEPENDS ${nn_sm_70_objects})
  else()
    add_custom_target(
      sm_70
      COMMAND ${CMAKE_COMMAND} -E echo
              "The check of sm_70 needs clang 19 or later (Debian: apt-get install clang-19) and `make cuda-toolchain`."
      COMMAND ${CMAKE_COMMAND} -E false
      VERBATIM)
  endif()
else()
  add_custom_target(sm_70) # nvcc compiles it with the rest
endif()
