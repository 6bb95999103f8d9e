//! Environments as launchers set them, and the place that each gives.

use super::launcher::of_node;
use super::*;

/// Variables, one `NAME=value` after the other.
fn of(variables: &str) -> Result<Option<Launched>, LaunchedError> {
    let pairs: Vec<(&str, &str)> =
        variables.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
    Launched::of(&Variables::new(&pairs))
}

const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                        OMPI_COMM_WORLD_LOCAL_SIZE=4 OMPI_COMM_WORLD_NODE_RANK=1 PMIX_RANK=5";
const HYDRA: &str = "PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4";
const TORCH: &str =
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=n0 MASTER_PORT=29500";
const TORCHRUN: &str = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 GROUP_WORLD_SIZE=2 \
                        ROLE_RANK=5 ROLE_WORLD_SIZE=8 TORCHELASTIC_RUN_ID=77 MASTER_ADDR=n0 MASTER_PORT=29500";
const SLURM: &str = "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=8 \
                     SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=4(x2)";
/// One task of Slurm's a machine.
const SLURM_AGENTS: &str = "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 \
                            SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=1(x2)";

#[test]
fn each_launcher_gives_the_place_that_it_sets() {
    use Launcher::{Flux, Hydra, Jsrun, Mvapich, OpenMpi, Pals, Slurm, Torchrun};
    let torch = Launcher::Variables;
    // Launcher, rank, count, local rank and count; variables.
    let environments = [
        (OpenMpi, [5, 8, 1, 4], OPEN_MPI.to_owned()),
        (Hydra, [5, 8, 1, 4], HYDRA.to_owned()),
        (Hydra, [5, 8, 1, 4], format!("{HYDRA} I_MPI_HYDRA_BOOTSTRAP=ssh MPI_LOCALRANKS=4")),
        (
            Mvapich,
            [5, 8, 1, 4],
            "MV2_COMM_WORLD_RANK=5 MV2_COMM_WORLD_SIZE=8 MV2_COMM_WORLD_LOCAL_RANK=1 MV2_COMM_WORLD_LOCAL_SIZE=4".into(),
        ),
        (
            Jsrun,
            [5, 8, 1, 4],
            "JSM_NAMESPACE_RANK=5 JSM_NAMESPACE_SIZE=8 JSM_NAMESPACE_LOCAL_RANK=1 JSM_NAMESPACE_LOCAL_SIZE=4".into(),
        ),
        (
            Jsrun,
            [5, 8, 1, 4],
            format!("{OPEN_MPI} JSM_NAMESPACE_RANK=5 JSM_NAMESPACE_SIZE=8 JSM_NAMESPACE_LOCAL_RANK=1 JSM_NAMESPACE_LOCAL_SIZE=4"),
        ),
        (
            Flux,
            [5, 8, 1, 4],
            "FLUX_TASK_RANK=5 FLUX_JOB_SIZE=8 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=2 PMI_RANK=5 PMI_SIZE=8".into(),
        ),
        (
            Pals,
            [1, 4, 1, 4],
            "PMI_RANK=1 PMI_SIZE=4 PALS_RANKID=1 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=4".into(),
        ),
        (
            Pals,
            [5, 8, 1, 4],
            "PMI_SIZE=8 PMI_LOCAL_SIZE=4 PALS_RANKID=5 PALS_LOCAL_RANKID=1 PALS_NODEID=1".into(),
        ),
        (Slurm { pmi: false }, [5, 8, 1, 4], SLURM.to_owned()),
        (Slurm { pmi: true }, [5, 8, 1, 4], format!("{SLURM} PMIX_RANK=5")),
        (Slurm { pmi: true }, [5, 8, 1, 4], format!("{SLURM} PMI_RANK=5 PMI_SIZE=8 PMI_FD=7")),
        (Slurm { pmi: true }, [5, 8, 1, 4], format!("{SLURM} PALS_RANKID=5 PALS_APINFO=/x")),
        (Torchrun, [5, 8, 1, 4], TORCHRUN.to_owned()),
        (torch, [5, 8, 1, 4], TORCH.to_owned()),
        // Within Slurm or mpirun, which count torchrun's agents.
        (Torchrun, [5, 8, 1, 4], format!("{TORCHRUN} {SLURM_AGENTS}")),
        (torch, [5, 8, 1, 4], format!("{TORCH} {SLURM_AGENTS} PMIX_RANK=1")),
        (
            Torchrun,
            [5, 8, 1, 4],
            format!("{TORCHRUN} OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1"),
        ),
        (
            torch,
            [1, 2, 1, 2],
            "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=1 \
             SLURM_STEP_NUM_TASKS=1 SLURM_NODEID=0 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1"
                .into(),
        ),
        // Scripts that export the variables of PyTorch from those of their launcher.
        (OpenMpi, [5, 8, 1, 4], format!("{TORCH} {OPEN_MPI}")),
        (OpenMpi, [5, 8, 1, 4], format!("RANK=5 WORLD_SIZE=8 {OPEN_MPI}")),
        (torch, [5, 8, 1, 4], format!("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=n0 {SLURM}")),
        (Slurm { pmi: true }, [5, 8, 1, 4], format!("{TORCH} {SLURM} PMIX_RANK=5")),
        // mpirun, whose daemons Slurm starts.
        (Hydra, [5, 8, 1, 4], format!("{HYDRA} {SLURM_AGENTS}")),
        (OpenMpi, [5, 8, 1, 4], format!("{OPEN_MPI} SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0")),
        // Kubeflow's PyTorchJob: a process a machine.
        (torch, [0, 1, 0, 1], "RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=23456".into()),
        (torch, [2, 4, 0, 1], "RANK=2 WORLD_SIZE=4 MASTER_ADDR=job-master-0 MASTER_PORT=23456 PET_NODE_RANK=2 PET_NNODES=4".into()),
        // Azure ML.
        (torch, [0, 1, 0, 1], "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 NODE_RANK=0 MASTER_ADDR=a MASTER_PORT=1".into()),
        // deepspeed.
        (torch, [5, 8, 1, 4], "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_SIZE=4 CROSS_RANK=1 CROSS_SIZE=2 MASTER_ADDR=a MASTER_PORT=1".into()),
        // SageMaker, which runs torchrun on each host.
        (Torchrun, [5, 8, 1, 4], format!("{TORCHRUN} SM_HOSTS=[\"algo-1\",\"algo-2\"] SM_CURRENT_HOST=algo-1")),
    ];
    for (launcher, [rank, count, local_rank, local_count], variables) in environments {
        let expected = Launched { launcher, rank, count, local_rank, local_count };
        assert_eq!(of(&variables), Ok(Some(expected)), "{variables}");
    }
}

#[test]
fn a_process_that_nobody_launched_is_alone() {
    for variables in [
        "",
        "PATH=/bin RANK=1",
        "WORLD_SIZE=1",
        "RANK= WORLD_SIZE=",
        "LORA_RANK=8 NODE_RANK=1 LOCAL_RANK=1 GROUP_RANK=1",
        "PMI_RANK=0 PMI_SIZE=1",
        "ANY_RANK=0 ANY_WORLD_SIZE=1",
        "SM_HOSTS=[\"algo-1\"] SM_CURRENT_HOST=algo-1",
        "JAX_PROCESS_ID=0 JAX_NUM_PROCESSES=1",
        // A batch script of Slurm's, a shell by `salloc`, and the step that some clusters run that in.
        "SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_TASKS_PER_NODE=4(x2)",
        "SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_JOB_NUM_NODES=2 SLURM_TASKS_PER_NODE=4(x2)",
        "SLURM_JOB_ID=7 SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=1",
        "SLURM_JOB_ID=7 SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_NTASKS=8",
    ] {
        assert_eq!(of(variables), Ok(None), "{variables}");
    }
}

#[test]
fn a_launcher_that_is_not_known_is_named_and_nothing_trains_alone() {
    for (variables, expected) in [
        (
            "PMI_RANK=1 PMI_SIZE=4",
            "isn't known started this process as one of several: PMI_RANK=1, PMI_SIZE=4",
        ),
        ("PMIX_RANK=0", "PMIX_RANK=0"),
        ("ANY_RANK=1 ANY_WORLD_SIZE=4", "ANY_RANK=1, ANY_WORLD_SIZE=4"),
        ("ANY_RANK=0 ANY_NRANKS=2", "ANY_RANK=0, ANY_NRANKS=2"),
        (
            "ANY_COMM_WORLD_RANK=2 ANY_COMM_WORLD_SIZE=3",
            "ANY_COMM_WORLD_RANK=2, ANY_COMM_WORLD_SIZE=3",
        ),
        ("ANY_WORLD_SIZE=4", "ANY_WORLD_SIZE=4"),
        ("ANY_RANKID=1", "ANY_RANKID=1"),
        ("ANY_PROCID=1 ANY_NTASKS=2", "ANY_PROCID=1, ANY_NTASKS=2"),
        ("ANY_PROCESS_ID=0 ANY_NUM_PROCESSES=2", "ANY_PROCESS_ID=0, ANY_NUM_PROCESSES=2"),
        (
            "HOROVOD_RANK=1 HOROVOD_SIZE=4",
            "Horovod launched this process as one of several (HOROVOD_RANK=1, HOROVOD_SIZE=4)",
        ),
        ("JAX_PROCESS_ID=1 JAX_NUM_PROCESSES=2", "JAX's cluster"),
        ("PET_NODE_RANK=0 PET_NNODES=2", "torchrun --no-python tightrope train"),
        ("SM_CURRENT_HOST=algo-1 SM_HOSTS=[\"algo-1\",\"algo-2\"]", "AWS SageMaker"),
        ("TPU_WORKER_ID=0 TPU_WORKER_HOSTNAMES=t0,t1", "Google's Cloud TPU"),
        ("ALPS_APP_PE=0", "Cray's aprun"),
        ("PADDLE_TRAINER_ID=1 PADDLE_TRAINERS_NUM=2", "PaddlePaddle"),
        // A world of one within one of several.
        ("RANK=0 WORLD_SIZE=1 ANY_RANK=1 ANY_SIZE=4", "ANY_RANK=1, ANY_SIZE=4"),
    ] {
        let said = of(variables).expect_err(variables).to_string();
        assert!(said.contains(expected), "{variables}: {said}");
    }
}

#[test]
fn contradictions_are_refused() {
    let alone = OPEN_MPI.replace("SIZE=8", "SIZE=1").replace("RANK=5", "RANK=0");
    for (variables, expected) in [
        (
            OPEN_MPI.replace("WORLD_RANK=5", "WORLD_RANK=8"),
            "Open MPI launched this process as rank 8 of 8",
        ),
        (
            HYDRA.replace("RANKID=1", "RANKID=4"),
            "MPICH's Hydra launched this process as local rank 4 of 4",
        ),
        (HYDRA.replace("NRANKS=4", "NRANKS=9"), "one of 8 ranks, 9 of them on its machine"),
        (
            TORCHRUN.replace("WORLD_SIZE=8", "WORLD_SIZE=many"),
            "WORLD_SIZE is \"many\", and should be a number",
        ),
        (SLURM.replace("PROCID=5", "PROCID=-1"), "SLURM_PROCID is \"-1\", and should be a number"),
        (SLURM.replace("4(x2)", "4"), "SLURM_STEP_TASKS_PER_NODE is \"4\""),
        (
            "RANK=1 MASTER_ADDR=n0".into(),
            "RANK and WORLD_SIZE launched this process, and WORLD_SIZE isn't set",
        ),
        (
            "WORLD_SIZE=4 LOCAL_RANK=1 NODE_RANK=0".into(),
            "launched this process, and RANK isn't set",
        ),
        ("RANK=1 WORLD_SIZE=4 LOCAL_RANK=1".into(), "LOCAL_WORLD_SIZE isn't set"),
        (
            format!(
                "{} {OPEN_MPI}",
                TORCHRUN.replace(" RANK=5", " ").replace("RANK=5 W", "RANK=4 W")
            ),
            "this process is rank 4 of 8 of torchrun and rank 5 of 8 of Open MPI",
        ),
        (
            format!("RANK=0 WORLD_SIZE=2 {SLURM_AGENTS}"),
            "rank 0 of 2 of a launcher that sets RANK and WORLD_SIZE and rank 1 of 2 of Slurm without PMI",
        ),
        // Worlds of one that Slurm starts.
        (format!("{alone} {SLURM}"), "rank 0 of 1 of Open MPI and rank 5 of 8 of Slurm"),
        (
            format!("{TORCHRUN} {}", SLURM_AGENTS.replace("TASKS=2", "TASKS=3")),
            "of torchrun and rank 1 of 3 of Slurm",
        ),
    ] {
        let said = of(&variables).expect_err(&variables).to_string();
        assert!(said.contains(expected), "{variables}: {said}");
    }
}

#[test]
fn tasks_of_nodes_are_read() {
    for (node, tasks) in [(0, Some(4)), (1, Some(4)), (2, Some(3)), (3, None)] {
        assert_eq!(of_node("4(x2),3", node), tasks);
    }
    for list in ["", "x", "4(x2", "4(x),1"] {
        assert_eq!(of_node(list, 0), None, "{list}");
    }
}
