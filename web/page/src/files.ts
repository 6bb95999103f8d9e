// Files in and out of the page.

/** Saves a file on the user's disk. */
export function offerDownload(name: string, file: Blob): void {
  const url = URL.createObjectURL(file);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser has taken the bytes once the click is over.
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Calls back with the file that is dropped anywhere on the page. */
export function onDrop(take: (file: File) => void): void {
  const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
  const dragging = (on: boolean): void => {
    document.body.classList.toggle("dragging", on);
  };
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    dragging(true);
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) dragging(false);
  });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    dragging(false);
    const file = event.dataTransfer?.files[0];
    if (file !== undefined) take(file);
  });
}
