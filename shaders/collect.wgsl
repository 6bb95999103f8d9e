// One number into its slot of a list, so that a launch binds the list instead of each.

@compute @workgroup_size(WORKGROUP)
fn collect() {
    store_numbers(params.slot, load_number(0u));
}
