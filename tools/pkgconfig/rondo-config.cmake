# rondo for CMake 3.22 or newer, by the pkg-config files beside:
#
#   find_package(rondo REQUIRED)
#   target_link_libraries(recogniser PRIVATE rondo::c)      # the C interface, a shared library
#   target_link_libraries(trainer PRIVATE rondo::train)     # C++: training, evaluation, recognition
#
# rondo::NAME is rondo-NAME.pc, and rondo::rondo is rondo.pc; each brings what it needs.
include(CMakeFindDependencyMacro)
find_dependency(PkgConfig)

set(_rondo_pc_path "$ENV{PKG_CONFIG_PATH}")
get_filename_component(_rondo_pc "${CMAKE_CURRENT_LIST_DIR}/../../pkgconfig" ABSOLUTE)
set(ENV{PKG_CONFIG_PATH} "${_rondo_pc}:${_rondo_pc_path}")
file(GLOB _rondo_files "${_rondo_pc}/rondo*.pc")
foreach(_rondo_file IN LISTS _rondo_files)
  get_filename_component(_rondo_module "${_rondo_file}" NAME_WE)
  string(REGEX REPLACE "^rondo-" "" _rondo_name "${_rondo_module}")
  if(NOT TARGET rondo::${_rondo_name})
    pkg_check_modules(rondo_pc_${_rondo_name} REQUIRED QUIET ${_rondo_module})
    add_library(rondo::${_rondo_name} INTERFACE IMPORTED GLOBAL)
    # All words of the line in their order: an IMPORTED_TARGET would put files, as CUDA's runtime is one, before the
    # libraries that need them.
    set_target_properties(rondo::${_rondo_name} PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${rondo_pc_${_rondo_name}_INCLUDE_DIRS}"
      INTERFACE_COMPILE_OPTIONS "${rondo_pc_${_rondo_name}_CFLAGS_OTHER}"
      INTERFACE_LINK_LIBRARIES "${rondo_pc_${_rondo_name}_LDFLAGS}")
  endif()
endforeach()
set(ENV{PKG_CONFIG_PATH} "${_rondo_pc_path}")
