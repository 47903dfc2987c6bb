//! A handle is a pointer to a value that counts its references: what AddRef and Release change.
use std::sync::Arc;

pub fn new<T>(value: T) -> *const T {
    Arc::into_raw(Arc::new(value))
}

macro_rules! counted {
    ($($type:ty: $add:ident, $release:ident;)*) => { $(
        #[no_mangle]
        pub unsafe extern "C" fn $add(handle: *const $type) {
            std::sync::Arc::increment_strong_count(handle);
        }
        #[no_mangle]
        pub unsafe extern "C" fn $release(handle: *const $type) {
            std::sync::Arc::decrement_strong_count(handle);
        }
    )* };
}

counted! {
    wgpu::Instance: wgpuInstanceAddRef, wgpuInstanceRelease;
    wgpu::Adapter: wgpuAdapterAddRef, wgpuAdapterRelease;
    crate::device::Device: wgpuDeviceAddRef, wgpuDeviceRelease;
    wgpu::Queue: wgpuQueueAddRef, wgpuQueueRelease;
    crate::buffer::Buffer: wgpuBufferAddRef, wgpuBufferRelease;
    wgpu::ShaderModule: wgpuShaderModuleAddRef, wgpuShaderModuleRelease;
    wgpu::ComputePipeline: wgpuComputePipelineAddRef, wgpuComputePipelineRelease;
    wgpu::PipelineLayout: wgpuPipelineLayoutAddRef, wgpuPipelineLayoutRelease;
    wgpu::BindGroupLayout: wgpuBindGroupLayoutAddRef, wgpuBindGroupLayoutRelease;
    wgpu::BindGroup: wgpuBindGroupAddRef, wgpuBindGroupRelease;
    wgpu::QuerySet: wgpuQuerySetAddRef, wgpuQuerySetRelease;
    crate::commands::Encoder: wgpuCommandEncoderAddRef, wgpuCommandEncoderRelease;
    crate::commands::Pass: wgpuComputePassEncoderAddRef, wgpuComputePassEncoderRelease;
    crate::commands::Commands: wgpuCommandBufferAddRef, wgpuCommandBufferRelease;
}
