//! Shader modules, layouts, pipelines and bind groups.
use crate::abi;
use crate::device::Device;
use crate::handle;

/// The WGSL text in a descriptor's chain.
unsafe fn wgsl_of(descriptor: &abi::Labelled) -> Option<String> {
    let mut link = descriptor.next;
    while let Some(chain) = link.as_ref() {
        if chain.kind == abi::KIND_WGSL {
            return Some((*link.cast::<abi::WgslSource>()).code.to_text());
        }
        link = chain.next;
    }
    None
}

unsafe fn module(device: &Device, descriptor: &abi::Labelled, checks: Option<u64>) -> *const wgpu::ShaderModule {
    device.tell_if_lost();
    let label = descriptor.label.to_text();
    let described = wgpu::ShaderModuleDescriptor {
        label: Some(&label),
        source: wgpu::ShaderSource::Wgsl(wgsl_of(descriptor).unwrap_or_default().into()),
    };
    handle::new(match checks {
        None => device.device.create_shader_module(described),
        Some(bits) => {
            let mut checks = wgpu::ShaderRuntimeChecks::unchecked();
            checks.bounds_checks = bits & 1 != 0;
            checks.force_loop_bounding = bits & 2 != 0;
            device.device.create_shader_module_trusted(described, checks)
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn wgpuDeviceCreateShaderModule(
    device: *const Device,
    descriptor: *const abi::Labelled,
) -> *const wgpu::ShaderModule {
    module(&*device, &*descriptor, None)
}

#[no_mangle]
pub unsafe extern "C" fn wgpuDeviceCreateShaderModuleTrusted(
    device: *const Device,
    descriptor: *const abi::Labelled,
    checks: u64,
) -> *const wgpu::ShaderModule {
    module(&*device, &*descriptor, Some(checks))
}

#[no_mangle]
pub unsafe extern "C" fn wgpuDeviceCreateBindGroupLayout(
    device: *const Device,
    descriptor: *const abi::LayoutDescriptor,
) -> *const wgpu::BindGroupLayout {
    let given = &*descriptor;
    let label = given.label.to_text();
    let entries: Vec<_> = (0..given.count)
        .map(|i| {
            let entry = &*given.entries.add(i);
            let kind = match entry.buffer.kind {
                abi::LAYOUT_UNIFORM => wgpu::BufferBindingType::Uniform,
                kind => wgpu::BufferBindingType::Storage { read_only: kind == abi::LAYOUT_READ_ONLY },
            };
            wgpu::BindGroupLayoutEntry {
                binding: entry.binding,
                visibility: wgpu::ShaderStages::from_bits_truncate(entry.visibility as u32),
                ty: wgpu::BindingType::Buffer {
                    ty: kind,
                    has_dynamic_offset: entry.buffer.dynamic_offset != 0,
                    min_binding_size: wgpu::BufferSize::new(entry.buffer.least_size),
                },
                count: None,
            }
        })
        .collect();
    let described = wgpu::BindGroupLayoutDescriptor { label: Some(&label), entries: &entries };
    handle::new((*device).device.create_bind_group_layout(&described))
}

#[no_mangle]
pub unsafe extern "C" fn wgpuDeviceCreatePipelineLayout(
    device: *const Device,
    descriptor: *const abi::PipelineLayoutDescriptor,
) -> *const wgpu::PipelineLayout {
    let given = &*descriptor;
    let label = given.label.to_text();
    let layouts: Vec<_> = (0..given.count).map(|i| (*given.layouts.add(i)).as_ref()).collect();
    handle::new((*device).device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(&label),
        bind_group_layouts: &layouts,
        immediate_size: given.immediates,
    }))
}

#[no_mangle]
pub unsafe extern "C" fn wgpuDeviceCreateComputePipeline(
    device: *const Device,
    descriptor: *const abi::PipelineDescriptor,
) -> *const wgpu::ComputePipeline {
    let given = &*descriptor;
    let (label, entry) = (given.label.to_text(), given.entry.to_text());
    handle::new((*device).device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&label),
        layout: given.layout.as_ref(),
        module: &*given.module,
        entry_point: Some(&entry),
        compilation_options: Default::default(),
        cache: None,
    }))
}

#[no_mangle]
pub unsafe extern "C" fn wgpuDeviceCreateBindGroup(
    device: *const Device,
    descriptor: *const abi::GroupDescriptor,
) -> *const wgpu::BindGroup {
    let given = &*descriptor;
    let label = given.label.to_text();
    let entries: Vec<_> = (0..given.count)
        .map(|i| {
            let entry = &*given.entries.add(i);
            wgpu::BindGroupEntry {
                binding: entry.binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &(*entry.buffer).buffer,
                    offset: entry.offset,
                    // All ones: to the end.
                    size: if entry.size == u64::MAX { None } else { wgpu::BufferSize::new(entry.size) },
                }),
            }
        })
        .collect();
    handle::new((*device).device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some(&label),
        layout: &*given.layout,
        entries: &entries,
    }))
}
