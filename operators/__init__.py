"""What users build topologies with: sources, transforms, sinks."""
