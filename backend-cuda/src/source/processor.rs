//! Kernels as C++ for a processor's compiler, against headers that stand for a GPU.

use super::{Kernel, SHARED, entry_name, file};

/// What stands for a GPU on a processor.
const PROCESSOR: [(&str, &str); 5] = [
    ("cuda_on_cpu.h", include_str!("../../../kernels/emulator/cuda_on_cpu.h")),
    ("last.h", include_str!("../../../kernels/emulator/last.h")),
    ("tensor_cores.h", include_str!("../../../kernels/emulator/tensor_cores.h")),
    ("hopper.h", include_str!("../../../kernels/emulator/hopper.h")),
    ("warpgroups.h", include_str!("../../../kernels/emulator/warpgroups.h")),
];

/// Text of several kernels for a processor's C++ compiler. Kernel `i` is called [`entry_name`].
pub fn for_processor(kernels: &[&Kernel]) -> String {
    let mut text = String::new();
    PROCESSOR.iter().for_each(|(name, header)| file(&mut text, name, header));
    SHARED.iter().for_each(|(stem, shared)| file(&mut text, &format!("{stem}.cuh"), shared));
    for (index, kernel) in kernels.iter().enumerate() {
        let Kernel { text: own, entry, threads, cluster, shared_bytes, operands, several, .. } =
            kernel;
        text += &format!("namespace k{index} {{\n{own}}}\n");
        let listed: Vec<String> =
            operands.iter().map(|(name, offset)| format!("{{\"{name}\", {offset}}}")).collect();
        let (listed, count) = (listed.join(", "), operands.len());
        let name = entry_name(index);
        let own = match several {
            1 => format!("*static_cast<const k{index}::Args *>(args)"),
            _ => format!(
                "static_cast<const Several<k{index}::Args, {several}> *>(args)->of(blockIdx.x)"
            ),
        };
        text += &format!(
            "extern \"C\" bool {name}(const void *args, unsigned blocks, unsigned seed, char *report, size_t bytes) {{
    static const TrOperand operands[] = {{{listed}}};
    const auto kernel = [](const void *args) {{
        const k{index}::Args &own = {own};
        tr.own = &own;
        k{index}::{entry}(own);
    }};
    return tr_launch(kernel, args, operands, {count}, {threads}, {cluster}, {shared_bytes}, blocks, seed, report, bytes);
}}\n"
        );
    }
    text
}
