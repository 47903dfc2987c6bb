//! The instance and its adapters.
use crate::abi;
use crate::handle;
use std::ffi::{c_char, CString};

/// The descriptor's extras name backends; this library has Vulkan alone.
#[no_mangle]
pub extern "C" fn wgpuCreateInstance(_descriptor: *const std::ffi::c_void) -> *const wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::VULKAN;
    // No validation layers and no checks of indirect calls, which there are none of: as wgpu-native's.
    descriptor.flags = wgpu::InstanceFlags::empty();
    handle::new(wgpu::Instance::new(descriptor))
}

/// How many adapters there are; fills `adapters` unless that is null.
#[no_mangle]
pub unsafe extern "C" fn wgpuInstanceEnumerateAdapters(
    instance: *const wgpu::Instance,
    _options: *const std::ffi::c_void,
    adapters: *mut *const wgpu::Adapter,
) -> usize {
    let found = pollster((*instance).enumerate_adapters(wgpu::Backends::VULKAN));
    let count = found.len();
    if !adapters.is_null() {
        for (i, adapter) in found.into_iter().enumerate() {
            *adapters.add(i) = handle::new(adapter);
        }
    }
    count
}

/// wgpu's futures are ready at once where there is no browser.
pub fn pollster<F: std::future::Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}

/// Text that the caller gives back through wgpuAdapterInfoFreeMembers. Nothing in it is a zero.
fn given(text: &str) -> abi::StringView {
    match CString::new(text) {
        Ok(text) => abi::StringView { length: text.as_bytes().len(), data: text.into_raw() },
        Err(_) => abi::StringView::EMPTY,
    }
}

/// The driver's name stands in `vendor` and its version in `description`, as wgpu-native has them.
#[no_mangle]
pub unsafe extern "C" fn wgpuAdapterGetInfo(adapter: *const wgpu::Adapter, out: *mut abi::AdapterInfo) -> u32 {
    let info = (*adapter).get_info();
    let out = &mut *out;
    out.vendor = given(&info.driver);
    out.architecture = abi::StringView::EMPTY;
    out.device = given(&info.name);
    out.description = given(&info.driver_info);
    out.backend = match info.backend {
        wgpu::Backend::Vulkan => 6,
        _ => 0,
    };
    out.kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => 1,
        wgpu::DeviceType::IntegratedGpu => 2,
        wgpu::DeviceType::Cpu => 3,
        _ => 4,
    };
    out.vendor_id = info.vendor;
    out.device_id = info.device;
    out.subgroup_min = info.subgroup_min_size;
    out.subgroup_max = info.subgroup_max_size;
    abi::SUCCESS
}

#[no_mangle]
pub unsafe extern "C" fn wgpuAdapterInfoFreeMembers(info: abi::AdapterInfo) {
    for text in [info.vendor, info.architecture, info.device, info.description] {
        if !text.data.is_null() {
            drop(CString::from_raw(text.data as *mut c_char));
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn wgpuAdapterGetLimits(adapter: *const wgpu::Adapter, out: *mut abi::Limits) -> u32 {
    let l = (*adapter).limits();
    *out = abi::Limits {
        next: (*out).next,
        texture_1d: l.max_texture_dimension_1d,
        texture_2d: l.max_texture_dimension_2d,
        texture_3d: l.max_texture_dimension_3d,
        texture_layers: l.max_texture_array_layers,
        bind_groups: l.max_bind_groups,
        bind_groups_plus_vertex_buffers: l.max_bind_groups + l.max_vertex_buffers,
        bindings_per_group: l.max_bindings_per_bind_group,
        dynamic_uniform_buffers: l.max_dynamic_uniform_buffers_per_pipeline_layout,
        dynamic_storage_buffers: l.max_dynamic_storage_buffers_per_pipeline_layout,
        sampled_textures: l.max_sampled_textures_per_shader_stage,
        samplers: l.max_samplers_per_shader_stage,
        storage_buffers: l.max_storage_buffers_per_shader_stage,
        storage_textures: l.max_storage_textures_per_shader_stage,
        uniform_buffers: l.max_uniform_buffers_per_shader_stage,
        uniform_binding: l.max_uniform_buffer_binding_size,
        storage_binding: l.max_storage_buffer_binding_size,
        uniform_alignment: l.min_uniform_buffer_offset_alignment,
        storage_alignment: l.min_storage_buffer_offset_alignment,
        vertex_buffers: l.max_vertex_buffers,
        buffer_size: l.max_buffer_size,
        vertex_attributes: l.max_vertex_attributes,
        vertex_stride: l.max_vertex_buffer_array_stride,
        inter_stage_variables: l.max_inter_stage_shader_variables,
        colors: l.max_color_attachments,
        color_bytes: l.max_color_attachment_bytes_per_sample,
        workgroup_storage: l.max_compute_workgroup_storage_size,
        invocations: l.max_compute_invocations_per_workgroup,
        workgroup_x: l.max_compute_workgroup_size_x,
        workgroup_y: l.max_compute_workgroup_size_y,
        workgroup_z: l.max_compute_workgroup_size_z,
        workgroups_per_dimension: l.max_compute_workgroups_per_dimension,
        immediates: l.max_immediate_size,
    };
    abi::SUCCESS
}

/// Whether the adapter multiplies 16x16 tiles of halves with sums in floats: what Doppler's kernels are made of.
fn has_tiles(adapter: &wgpu::Adapter) -> bool {
    adapter.features().contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
        && adapter.cooperative_matrix_properties().iter().any(|p| {
            (p.m_size, p.n_size, p.k_size) == (16, 16, 16)
                && p.ab_type == wgpu::CooperativeScalarType::F16
                && p.cr_type == wgpu::CooperativeScalarType::F32
        })
}

/// The feature of wgpu that a number of the headers means, if the adapter has it.
pub fn feature(adapter: &wgpu::Adapter, number: u32) -> Option<wgpu::Features> {
    let feature = match number {
        abi::FEATURE_TIMESTAMPS => wgpu::Features::TIMESTAMP_QUERY,
        abi::FEATURE_F16 => wgpu::Features::SHADER_F16,
        abi::FEATURE_SUBGROUPS => wgpu::Features::SUBGROUP,
        abi::FEATURE_COOPERATIVE_MATRIX if has_tiles(adapter) => wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX,
        _ => return None,
    };
    adapter.features().contains(feature).then_some(feature)
}

#[no_mangle]
pub unsafe extern "C" fn wgpuAdapterHasFeature(adapter: *const wgpu::Adapter, number: u32) -> u32 {
    feature(&*adapter, number).is_some().into()
}
