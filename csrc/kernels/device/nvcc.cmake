# Finds a working nvcc and tests its features. The results are cached until nvcc or the request
# changes.

# Runs nvcc on a small kernel. Sets `result` to TRUE if it compiles and to FALSE otherwise, and
# PC_NVCC_SAYS to nvcc's exit code and output.
function(pc_try_nvcc result)
  set(source "${CMAKE_CURRENT_BINARY_DIR}/probe.cu")
  file(WRITE "${source}" "struct Words { unsigned long long word[40]; };
template <bool yes> __device__ unsigned long long pick(const Words& words) {
  if constexpr (yes) return words.word[threadIdx.x];
  return 0;
}
extern \"C\" __global__ void probe(const __grid_constant__ Words words, unsigned long long* to) { *to = pick<true>(words); }
")
  execute_process(
    COMMAND "${PYCOLLECTIVE_NVCC}" ${ARGN} -fatbin -o "${CMAKE_CURRENT_BINARY_DIR}/probe.fatbin" "${source}"
    RESULT_VARIABLE code OUTPUT_VARIABLE says ERROR_VARIABLE says TIMEOUT 120)
  if(code EQUAL 0)
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
  string(STRIP "${says}" says)
  set(PC_NVCC_SAYS "${code}: ${says}" PARENT_SCOPE)
endfunction()

# Sets `result` to the numbers of PYCOLLECTIVE_CUDA_ARCHS that nvcc knows, oldest first, and
# PC_NVCC_WHY_NOT if there are none.
function(pc_known_archs result)
  execute_process(COMMAND "${PYCOLLECTIVE_NVCC}" --list-gpu-code RESULT_VARIABLE code OUTPUT_VARIABLE known
                  ERROR_VARIABLE says TIMEOUT 60)
  if(NOT code EQUAL 0)
    string(STRIP "${says}" says)
    set(PC_NVCC_WHY_NOT "${PYCOLLECTIVE_NVCC} --list-gpu-code ends with ${code}: ${says}" PARENT_SCOPE)
    return()
  endif()
  string(REGEX MATCHALL "sm_[0-9]+" known "${known}")
  set(wanted ${PYCOLLECTIVE_CUDA_ARCHS})
  list(SORT wanted COMPARE NATURAL)
  list(REMOVE_DUPLICATES wanted)
  set(archs "")
  foreach(arch IN LISTS wanted)
    if("sm_${arch}" IN_LIST known)
      list(APPEND archs ${arch})
    else()
      message(STATUS "pycollective: ${PYCOLLECTIVE_NVCC} knows no sm_${arch}; no kernels for it")
    endif()
  endforeach()
  if(NOT archs)
    set(PC_NVCC_WHY_NOT "${PYCOLLECTIVE_NVCC} knows none of PYCOLLECTIVE_CUDA_ARCHS=${PYCOLLECTIVE_CUDA_ARCHS}" PARENT_SCOPE)
  endif()
  set(${result} ${archs} PARENT_SCOPE)
endfunction()

# Tests whether nvcc compiles with the flags ARGN, unless the result is cached. If it does, sets
# PC_NVCC_MORE_FLAGS (cached) to further flags that it knows; otherwise sets PC_NVCC_WHY_NOT.
function(pc_prove_nvcc)
  file(TIMESTAMP "${PYCOLLECTIVE_NVCC}" changed)
  set(asked "${PYCOLLECTIVE_NVCC} ${changed} ${ARGN}")
  if("${asked}" STREQUAL "${PC_NVCC_ASKED}")
    return()
  endif()
  set(more -t 0 -compress-mode=size)  # -compress-mode makes the fat binary much smaller; nvcc has it since about 12.8
  pc_try_nvcc(works ${ARGN} ${more})
  if(NOT works)
    set(more "")
    pc_try_nvcc(works ${ARGN})
  endif()
  if(NOT works)
    set(PC_NVCC_WHY_NOT "${PYCOLLECTIVE_NVCC} does not compile a kernel of a few lines, it ends with ${PC_NVCC_SAYS}" PARENT_SCOPE)
    return()
  endif()
  set(PC_NVCC_ASKED "${asked}" CACHE INTERNAL "What nvcc has been found to do")
  set(PC_NVCC_MORE_FLAGS "${more}" CACHE INTERNAL "Flags that not every nvcc has")
endfunction()

# Sets in the caller: PC_NVCC_FLAGS (compiler flags), PC_NVCC_TARGETS (sm_75;...;compute_75) and
# PC_NVCC_WHY_NOT (empty if nvcc works).
function(pc_ask_nvcc)
  set(PC_NVCC_FLAGS "" PARENT_SCOPE)
  set(PC_NVCC_TARGETS "" PARENT_SCOPE)
  set(PC_NVCC_WHY_NOT "" PARENT_SCOPE)
  find_program(PYCOLLECTIVE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin
               DOC "NVIDIA's compiler, which makes the kernels for GPUs")
  if(NOT PYCOLLECTIVE_NVCC)
    set(PC_NVCC_WHY_NOT "there is no nvcc in PATH, CUDA_HOME or /usr/local/cuda" PARENT_SCOPE)
    return()
  endif()

  pc_known_archs(archs)
  if(NOT archs)
    set(PC_NVCC_WHY_NOT "${PC_NVCC_WHY_NOT}" PARENT_SCOPE)
    return()
  endif()

  # The kernels use only features of the oldest target. So its PTX is generated once, all machine
  # code is compiled from it, and newer drivers compile it for newer GPUs. This takes a third of the
  # time of separate PTX for each target.
  list(GET archs 0 oldest)
  set(code_for "compute_${oldest}")
  set(names "")
  foreach(arch IN LISTS archs)
    string(APPEND code_for ",sm_${arch}")
    list(APPEND names "sm_${arch}")
  endforeach()
  list(APPEND names "compute_${oldest}")
  # The same bits as on the CPU: nothing is fused, flushed or approximated.
  set(flags -O3 -std=c++17 -fmad=false -ftz=false -prec-div=true -allow-unsupported-compiler)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND flags -ccbin "${CMAKE_CXX_COMPILER}")  # the host compiler preprocesses the sources
  endif()
  if(PYCOLLECTIVE_WERROR)
    list(APPEND flags -Werror all-warnings)
  endif()
  list(APPEND flags -gencode "arch=compute_${oldest},code=[${code_for}]")

  pc_prove_nvcc(${flags})
  set(PC_NVCC_WHY_NOT "${PC_NVCC_WHY_NOT}" PARENT_SCOPE)
  set(PC_NVCC_FLAGS ${flags} ${PC_NVCC_MORE_FLAGS} PARENT_SCOPE)
  set(PC_NVCC_TARGETS ${names} PARENT_SCOPE)
endfunction()
