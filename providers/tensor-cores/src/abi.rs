//! The structs and numbers of webgpu.h and wgpu.h (29) that Doppler passes, as C lays them out.
use std::ffi::{c_char, c_void};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct StringView {
    pub data: *const c_char,
    pub length: usize,
}

impl StringView {
    pub const EMPTY: StringView = StringView { data: std::ptr::null(), length: 0 };

    pub fn of(text: &str) -> StringView {
        StringView { data: text.as_ptr().cast(), length: text.len() }
    }

    /// Bytes that are no UTF-8 are replaced: WGSL and labels are text.
    pub unsafe fn to_text(self) -> String {
        if self.data.is_null() {
            return String::new();
        }
        if self.length == usize::MAX {
            return std::ffi::CStr::from_ptr(self.data).to_string_lossy().into_owned();
        }
        String::from_utf8_lossy(std::slice::from_raw_parts(self.data.cast(), self.length)).into_owned()
    }
}

#[repr(C)]
pub struct Chain {
    pub next: *const Chain,
    pub kind: u32,
}

pub const KIND_WGSL: u32 = 2;

#[repr(C)]
pub struct WgslSource {
    pub chain: Chain,
    pub code: StringView,
}

/// Of shader modules and encoders.
#[repr(C)]
pub struct Labelled {
    pub next: *const Chain,
    pub label: StringView,
}

pub const FEATURE_TIMESTAMPS: u32 = 0x0009;
pub const FEATURE_F16: u32 = 0x000B;
pub const FEATURE_SUBGROUPS: u32 = 0x0003_0021;
pub const FEATURE_COOPERATIVE_MATRIX: u32 = 0x0003_003B;

#[repr(C)]
pub struct AdapterInfo {
    pub next: *const Chain,
    pub vendor: StringView,
    pub architecture: StringView,
    pub device: StringView,
    pub description: StringView,
    pub backend: u32,
    pub kind: u32,
    pub vendor_id: u32,
    pub device_id: u32,
    pub subgroup_min: u32,
    pub subgroup_max: u32,
}

#[repr(C)]
pub struct Limits {
    pub next: *const Chain,
    pub texture_1d: u32,
    pub texture_2d: u32,
    pub texture_3d: u32,
    pub texture_layers: u32,
    pub bind_groups: u32,
    pub bind_groups_plus_vertex_buffers: u32,
    pub bindings_per_group: u32,
    pub dynamic_uniform_buffers: u32,
    pub dynamic_storage_buffers: u32,
    pub sampled_textures: u32,
    pub samplers: u32,
    pub storage_buffers: u32,
    pub storage_textures: u32,
    pub uniform_buffers: u32,
    pub uniform_binding: u64,
    pub storage_binding: u64,
    pub uniform_alignment: u32,
    pub storage_alignment: u32,
    pub vertex_buffers: u32,
    pub buffer_size: u64,
    pub vertex_attributes: u32,
    pub vertex_stride: u32,
    pub inter_stage_variables: u32,
    pub colors: u32,
    pub color_bytes: u32,
    pub workgroup_storage: u32,
    pub invocations: u32,
    pub workgroup_x: u32,
    pub workgroup_y: u32,
    pub workgroup_z: u32,
    pub workgroups_per_dimension: u32,
    pub immediates: u32,
}

pub type LostCallback = unsafe extern "C" fn(*const *const c_void, u32, StringView, *mut c_void, *mut c_void);
pub type ErrorCallback = LostCallback; // (device, type, message, userdata1, userdata2): the same shape
pub type DeviceCallback = unsafe extern "C" fn(u32, *const crate::device::Device, StringView, *mut c_void, *mut c_void);
pub type MapCallback = unsafe extern "C" fn(u32, StringView, *mut c_void, *mut c_void);

/// Device lost, device requested, buffer mapped: all three have these members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CallbackInfo<F> {
    pub next: *const Chain,
    pub mode: u32,
    pub callback: Option<F>,
    pub userdata1: *mut c_void,
    pub userdata2: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ErrorCallbackInfo {
    pub next: *const Chain,
    pub callback: Option<ErrorCallback>,
    pub userdata1: *mut c_void,
    pub userdata2: *mut c_void,
}

#[repr(C)]
pub struct DeviceDescriptor {
    pub next: *const Chain,
    pub label: StringView,
    pub feature_count: usize,
    pub features: *const u32,
    pub limits: *const Limits,
    pub queue: Labelled,
    pub lost: CallbackInfo<LostCallback>,
    pub error: ErrorCallbackInfo,
}

#[repr(C)]
pub struct BufferDescriptor {
    pub next: *const Chain,
    pub label: StringView,
    pub usage: u64,
    pub size: u64,
    pub mapped_at_creation: u32,
}

#[repr(C)]
pub struct BufferLayout {
    pub next: *const Chain,
    pub kind: u32,
    pub dynamic_offset: u32,
    pub least_size: u64,
}
pub const LAYOUT_UNIFORM: u32 = 2;
pub const LAYOUT_STORAGE: u32 = 3;
pub const LAYOUT_READ_ONLY: u32 = 4;

#[repr(C)]
pub struct LayoutEntry {
    pub next: *const Chain,
    pub binding: u32,
    pub visibility: u64,
    pub array_size: u32,
    pub buffer: BufferLayout,
    pub sampler: [u64; 2], // these three are not looked at: Doppler binds buffers only
    pub texture: [u64; 3],
    pub storage_texture: [u64; 3],
}

#[repr(C)]
pub struct LayoutDescriptor {
    pub next: *const Chain,
    pub label: StringView,
    pub count: usize,
    pub entries: *const LayoutEntry,
}

#[repr(C)]
pub struct PipelineLayoutDescriptor {
    pub next: *const Chain,
    pub label: StringView,
    pub count: usize,
    pub layouts: *const *const wgpu::BindGroupLayout,
    pub immediates: u32,
}

#[repr(C)]
pub struct PipelineDescriptor {
    pub next: *const Chain,
    pub label: StringView,
    pub layout: *const wgpu::PipelineLayout,
    pub stage_next: *const Chain,
    pub module: *const wgpu::ShaderModule,
    pub entry: StringView,
    pub constant_count: usize,
    pub constants: *const c_void,
}

#[repr(C)]
pub struct GroupEntry {
    pub next: *const Chain,
    pub binding: u32,
    pub buffer: *const crate::buffer::Buffer,
    pub offset: u64,
    pub size: u64,
    pub sampler: *const c_void,
    pub texture: *const c_void,
}

#[repr(C)]
pub struct GroupDescriptor {
    pub next: *const Chain,
    pub label: StringView,
    pub layout: *const wgpu::BindGroupLayout,
    pub count: usize,
    pub entries: *const GroupEntry,
}

#[repr(C)]
pub struct TimestampWrites {
    pub next: *const Chain,
    pub set: *const wgpu::QuerySet,
    pub begin: u32,
    pub end: u32,
}

#[repr(C)]
pub struct PassDescriptor {
    pub next: *const Chain,
    pub label: StringView,
    pub timestamps: *const TimestampWrites,
}

#[repr(C)]
pub struct QuerySetDescriptor {
    pub next: *const Chain,
    pub label: StringView,
    pub kind: u32,
    pub count: u32,
}

#[repr(C)]
pub struct Future {
    pub id: u64,
}

pub const SUCCESS: u32 = 1; // of a status, a map and a device's request
pub const FAILED: u32 = 3; // of a map and a device's request
